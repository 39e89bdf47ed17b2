"""Commands that members of an engine run, such as `superworkflow executor`; each engine names its own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.engines import member_commands


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Leave them to the engine."""
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def run(options: argparse.Namespace) -> int:
    """Run one member to its end."""
    return int(imported(member_commands()[options.command])(options.arguments))
