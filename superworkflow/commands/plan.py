"""`superworkflow plan`: what would run and what it would take."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from superworkflow.arguments import add_request_arguments, request_from
from superworkflow.dashboards.terminal import print_plan
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.request import check_machine
from superworkflow.infra.planning.plan import plan


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    add_request_arguments(parser, given)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print the plan, and what the run would be refused for where it is this machine's."""
    _, request = request_from(options)
    stages = plan(request)
    if options.json:
        described = [
            asdict(stage) | {"resources": stage.resources.model_dump(), "fits": stage.fits} for stage in stages
        ]
        print(json.dumps(described, indent=1))
    else:
        print_plan(stages)
    try:
        check_machine(request)
    except UserError as error:  # no error of the plan: the run may be for another machine
        print(f"On this machine `run` would refuse this: {error}", file=sys.stderr)
    return 0
