"""`superworkflow probe`: what `check` runs in a pod."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from superworkflow.infra.base.errors import SuperworkflowError
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.storage.store import Store


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--store", required=True, metavar="URI", help="store to write to")


def run(options: argparse.Namespace) -> int:
    """Write to the store and say how that went, as an event."""
    progress = Progress("probe", events=True, stream=sys.stdout)
    try:
        Store(options.store).check_writable()
    except SuperworkflowError as error:
        progress.emit("error", message=str(error), user=True)
        return error.exit_code
    progress.emit("done", store=options.store)
    return 0
