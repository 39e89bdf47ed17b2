"""`superworkflow rollback`: return to an earlier version of a model."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

from superworkflow.commands.models import add_change_arguments, registry_of


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    add_change_arguments(parser, "by default the one in use before the present one was promoted")


def run(options: argparse.Namespace) -> int:
    """Move `current` back; no run moves it until somebody promotes."""
    move = registry_of(options).roll_back(options.name, options.version, options.why)
    if options.json:
        print(json.dumps(asdict(move)))
    else:
        print(f"{options.name}: version {move.version} is in use again instead of version {move.previous}")
        print("Runs register challengers but promote none until `superworkflow promote`.")
    return 0
