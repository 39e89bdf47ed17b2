"""`superworkflow runs`: what was recorded."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

from superworkflow.dashboards.comparison import print_runs
from superworkflow.infra.config.request import default_store


def add_history_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that locate the records."""
    parser.add_argument("--store", default=default_store(), metavar="URI", help="store whose recorded runs are read")
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    add_history_arguments(parser)
    parser.add_argument("--limit", type=int, default=20, help="how many, newest first; default 20")
    parser.add_argument("--superworkflow", default="", metavar="NAME", help="only those of a superworkflow")
    parser.add_argument("--deployment", default="", metavar="NAME", help="only those of a deployment")
    parser.add_argument(
        "--outcome", default="", help="only completed, failed, running, stopped, promoted, rejected, waits, current or "
        "unchanged ones",
    )  # fmt: skip
    parser.add_argument("--tag", default="", metavar="NAME[=VALUE]", help="only those with a tag (see `note`)")
    parser.add_argument("--text", default="", help="only those with a text in name, id, note, tags, decision or error")


def run(options: argparse.Namespace) -> int:
    """Print the list."""
    from superworkflow.infra.tracking.history import recorded_runs
    from superworkflow.infra.tracking.run_filter import RunFilter
    from superworkflow.infra.tracking.uris import default_tracking_uri

    which = RunFilter(options.superworkflow, options.deployment, options.outcome, options.tag, options.text)
    runs = recorded_runs(default_tracking_uri(options.store), options.limit, which)
    if options.json:
        print(json.dumps([asdict(each) for each in runs], indent=1, default=str))
    else:
        print_runs(runs)
    return 0
