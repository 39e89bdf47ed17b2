"""`superworkflow models`: what is registered, which version is in use, and why."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from superworkflow.commands.runs import add_history_arguments
from superworkflow.infra.base.extras import require_extra

if TYPE_CHECKING:
    from superworkflow.infra.tracking.models import ModelRegistry


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="registered name; all models by default")
    add_history_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Print the list."""
    from superworkflow.dashboards.models import print_models

    registry = registry_of(options)
    listed = registry.listed(options.name)
    holds = {name: hold for name in listed if (hold := registry.hold(name)) is not None}
    if options.json:
        document = [
            {"name": name, "hold": asdict(holds[name]) if name in holds else None, "versions": [
                asdict(each) for each in versions
            ]}
            for name, versions in listed.items()
        ]  # fmt: skip
        print(json.dumps(document, indent=1, default=str))
    else:
        print_models(listed, holds)
    return 0


def add_change_arguments(parser: argparse.ArgumentParser, version: str) -> None:
    """Add the options that `promote` and `rollback` share."""
    parser.add_argument("name", metavar="NAME", help="registered name")
    parser.add_argument("version", metavar="VERSION", nargs="?", type=int, help=version)
    parser.add_argument("--why", required=True, metavar="TEXT", help="reason, kept with the version")
    add_history_arguments(parser)


def registry_of(options: argparse.Namespace) -> ModelRegistry:
    """The registry of the runs that are recorded for the store of the options."""
    require_extra("flow")
    from superworkflow.infra.tracking.history import open_registry

    return open_registry(options.store)
