"""`superworkflow run`: the stages in order, as a Prefect flow where a server is named, recorded in MLflow."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from superworkflow.arguments import (
    add_promotion_arguments,
    add_request_arguments,
    check_registered,
    registration_from,
    request_from,
)
from superworkflow.dashboards.terminal import print_run, program
from superworkflow.execution import Execution
from superworkflow.infra.base.errors import DatasetDamaged, SuperworkflowError, UserError
from superworkflow.infra.base.extras import require_extra
from superworkflow.infra.config.request import Request
from superworkflow.infra.process.interrupt import Interrupted
from superworkflow.infra.tracking.records import RunRecord

REJECTED = 3
"""Exit status of a run whose stages are complete, and one of whose models was rejected."""


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    chosen = add_request_arguments(parser, given)
    formats = ", ".join(chosen.exports) or "there is none" if chosen is not None else "those of the superworkflow"
    parser.add_argument("--name", help="name of the run in Prefect and MLflow")
    parser.add_argument(
        "--export",
        action="append",
        default=[],
        metavar="FORMAT",
        help=f"also write the result as FORMAT: {formats}; or OUTPUT=ADDRESS: a table of it to "
        "postgresql://…?table=NAME, or a path or URI that ends in .parquet, .lance or .faiss",
    )
    parser.add_argument(
        "--register",
        metavar="NAME",
        help="register the model under this name, and promote it if it is good enough; exit status 3 if it is rejected",
    )
    add_promotion_arguments(parser)
    parser.add_argument("--no-tracking", action="store_true", help="record nothing in MLflow")
    parser.add_argument("--json", action="store_true", help="print one JSON document on standard output at the end")


def run(options: argparse.Namespace) -> int:
    """Run; the exit status is 0, 1 (a stage failed), 2 (bad input) or 3 (all stages are complete; see `REJECTED`)."""
    require_extra("flow")
    _, request = request_from(
        options,
        lambda chosen: check_registered(registration_from(options, chosen, options.register), not options.no_tracking),
    )
    return start(request, options).exit_code


@dataclass(frozen=True)
class Started:
    """End of a run.

    Args:
        exit_code: exit status of the command.
        record: of a run that is complete.
    """

    exit_code: int
    record: RunRecord | None = None


def start(request: Request, options: argparse.Namespace) -> Started:
    """Run, and print the result; `options` has `name`, `export`, `no_tracking` and `json`."""
    execution = Execution(request, options.name, options.export, tracked=not options.no_tracking)
    resume = "Complete stages are kept. To resume from there:\n    "
    resume += shlex.join([program("superworkflow"), *sys.argv[1:]])
    try:
        record = execution.run(resume)
    except (SuperworkflowError, Interrupted) as error:
        is_input = isinstance(error, UserError) and not isinstance(error, DatasetDamaged)
        hint = "Complete stages are kept." if is_input else resume  # the same command would fail again
        print(f"\n{error}\n{hint}", file=sys.stderr)
        return Started(error.exit_code)
    print_run(record, execution.tracking_uri, execution.tracker.url())
    if options.json:
        print(json.dumps(record.document(), indent=1))
    rejected = any(each.verdict == "rejected" for each in record.decisions)
    return Started(REJECTED if rejected else 0, record)
