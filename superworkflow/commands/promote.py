"""`superworkflow promote`: put a version of a model into use."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

from superworkflow.commands.models import add_change_arguments, registry_of


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    add_change_arguments(parser, "the challenger's by default")


def run(options: argparse.Namespace) -> int:
    """Move `current`; a rollback no longer holds."""
    move = registry_of(options).promote(options.name, options.version, options.why)
    if options.json:
        print(json.dumps(asdict(move)))
    else:
        before = f", before it version {move.previous}" if move.previous is not None else ""
        print(f"{options.name}: version {move.version} is in use{before}")
    return 0
