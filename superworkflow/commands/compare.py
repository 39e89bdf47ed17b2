"""`superworkflow compare`: two runs side by side."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

from superworkflow.commands.runs import add_history_arguments
from superworkflow.dashboards.comparison import compare, print_comparison


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    parser.add_argument("first", metavar="RUN", help="ID, prefix of an ID, or name")
    parser.add_argument("second", metavar="RUN", help="ID, prefix of an ID, or name")
    add_history_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Print the comparison."""
    from superworkflow.infra.tracking.history import find_run
    from superworkflow.infra.tracking.uris import default_tracking_uri

    uri = default_tracking_uri(options.store)
    comparison = compare(find_run(uri, options.first), find_run(uri, options.second))
    if options.json:
        print(json.dumps(asdict(comparison), indent=1, default=str))
    else:
        print_comparison(comparison)
    return 0
