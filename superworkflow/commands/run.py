"""`superworkflow run`: the stages in order, as a Prefect flow, recorded in MLflow."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from superworkflow.arguments import add_promotion_arguments, add_request_arguments, registration_from, request_from
from superworkflow.dashboards.terminal import RunDisplay, print_run, program
from superworkflow.infra.base.errors import DatasetDamaged, SuperworkflowError, UserError
from superworkflow.infra.base.extras import require_extra
from superworkflow.infra.config.request import Request, check_machine
from superworkflow.infra.contract.registration import Registration
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.launch import make_launcher
from superworkflow.infra.orchestration.export import check_formats, export
from superworkflow.infra.process.interrupt import Interrupted, interruptible
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.records import RunRecord


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
        help=f"also write the result as FORMAT: {formats}",
    )
    parser.add_argument(
        "--register", metavar="NAME", help="register the model under this name, and promote it if it is good enough"
    )
    add_promotion_arguments(parser)
    parser.add_argument("--no-tracking", action="store_true", help="record nothing in MLflow")
    parser.add_argument("--json", action="store_true", help="print one JSON document on standard output at the end")


def run(options: argparse.Namespace) -> int:
    """Run; the exit status is 0, 1 (a stage failed) or 2 (bad input)."""
    require_extra("flow")
    superworkflow, request = request_from(options, lambda chosen: _registration(chosen, options))
    check_formats(superworkflow, options.export)
    return start(superworkflow, request, options).exit_code


@dataclass(frozen=True)
class Started:
    """End of a run.

    Args:
        exit_code: exit status of the command.
        record: of a run that is complete.
    """

    exit_code: int
    record: RunRecord | None = None


def start(superworkflow: Superworkflow, request: Request, options: argparse.Namespace) -> Started:
    """Run, and print the result; `options` has `name`, `export`, `no_tracking` and `json`."""
    check_machine(request)  # before a server is started
    request.store.check_writable()
    launcher = make_launcher(request.profile)
    launcher.prepare(request.missing_stages(), request.store.uri)
    from superworkflow.infra.orchestration.server import connect

    api = connect()  # while it starts, the other libraries are imported
    from superworkflow.dashboards.report import attach_pictures
    from superworkflow.infra.orchestration.flow import make_flow
    from superworkflow.infra.orchestration.parameters import flow_parameters

    tracker, uri = _tracker(request, options)  # one that is down is said before anything starts
    api.result()
    display = RunDisplay(request)
    flow = make_flow(
        superworkflow, request=request, tracker=lambda _: tracker, listener=display,
        finish=partial(attach_pictures, pictures=superworkflow.pictures), run_name=options.name,
        launcher=lambda _: launcher, prepared=True,
    )  # fmt: skip
    resume = "Complete stages are kept. To resume from there:\n    "
    resume += shlex.join([program("superworkflow"), *sys.argv[1:]])
    try:
        with interruptible(resume):
            record = flow(**flow_parameters(request))
            for name in options.export:
                record.outputs[f"export_{name}"] = export(superworkflow, name, record)
    except (SuperworkflowError, Interrupted) as error:
        is_input = isinstance(error, UserError) and not isinstance(error, DatasetDamaged)
        hint = "Complete stages are kept." if is_input else resume  # the same command would fail again
        print(f"\n{error}\n{hint}", file=sys.stderr)
        return Started(error.exit_code)
    print_run(record, uri, tracker.url())
    if options.json:
        print(json.dumps(record.document(), indent=1))
    return Started(0, record)


def _registration(superworkflow: Superworkflow, options: argparse.Namespace) -> Registration:
    if options.register and options.no_tracking:
        raise UserError("not together with --no-tracking: models are kept in MLflow", where="--register",
                        value=options.register)  # fmt: skip
    found = registration_from(options, superworkflow, options.register)
    if found != Registration() and not found.name:
        where = "--gate, --max-drift, --tolerance, --no-promote, --warm-start"
        raise UserError("this run registers no model", where=where, remedy="Name one with --register NAME")
    return found


def _tracker(request: Request, options: argparse.Namespace) -> tuple[Tracker, str | None]:
    """The tracker of this run, and the URI at which people look for it."""
    if options.no_tracking:
        return Tracker(), None
    from superworkflow.infra.tracking.mlflow_tracker import MlflowTracker, default_tracking_uri

    uri = default_tracking_uri(request.store.root)
    return MlflowTracker(uri), uri
