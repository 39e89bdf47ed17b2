"""`superworkflow explain`: for each stage, cached or why not."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

from superworkflow.arguments import add_request_arguments, request_from
from superworkflow.dashboards.terminal import print_explanations
from superworkflow.infra.planning.explain import explain


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    add_request_arguments(parser, given)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print the explanations."""
    _, request = request_from(options)
    explanations = explain(request)
    if options.json:
        print(json.dumps([asdict(explanation) for explanation in explanations], indent=1, default=str))
    else:
        print_explanations(explanations)
    return 0
