"""`superworkflow dashboard`: serves pages of recorded runs from this machine."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.extras import require_extra
from superworkflow.infra.config.request import default_store
from superworkflow.infra.storage.location import Location
from superworkflow.infra.tracking.links import DASHBOARD_PORT

if TYPE_CHECKING:
    from optuna.study import Study

Studies = tuple[Callable[[], list[str]], Callable[[str], "tuple[Study, Mapping[str, Any]] | None"]]


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--store", default=default_store(), metavar="URI", help="store whose recorded runs are shown")
    parser.add_argument("--storage", metavar="URL", help="database of the sweeps; default SQLite in the store")
    parser.add_argument("--budget-usd", type=float, metavar="USD", help="budget for a month, shown with its forecast")
    parser.add_argument("--port", type=int, default=DASHBOARD_PORT, help=f"default {DASHBOARD_PORT}; 0: any free one")
    parser.add_argument(
        "--host", default="127.0.0.1",
        help="address to listen on; default 127.0.0.1. With another, set a password in the variable "
        "SUPERWORKFLOW_DASHBOARD_PASSWORD, or --user-header",
    )  # fmt: skip
    parser.add_argument(
        "--user-header", metavar="NAME",
        help="header such as X-Forwarded-User in which a proxy names the user that it has authenticated; requests "
        "without it are refused",
    )  # fmt: skip
    parser.add_argument("--prefix", default="", metavar="/PATH", help="prefix of all addresses, behind a proxy")


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted; the exit status is 2 for bad input."""
    for extra in ("flow", "sweep", "dashboard"):
        require_extra(extra)
    if options.budget_usd is not None and not 0 < options.budget_usd < math.inf:
        raise UserError("must be above 0, and finite", where="--budget-usd", value=options.budget_usd)
    from waitress import create_server  # type: ignore[import-untyped]

    from superworkflow.dashboards.web.access import PASSWORD, Access
    from superworkflow.dashboards.web.app import LOCAL, Sources, make_app
    from superworkflow.infra.orchestration.schedules import scheduled_deployments
    from superworkflow.infra.orchestration.server import page
    from superworkflow.infra.tracking.run_reader import RunReader
    from superworkflow.infra.tracking.uris import default_tracking_uri

    store = Location.of(options.store)
    names, study = _studies(options.storage, store)
    sources = Sources(
        store=store.uri, runs=RunReader(default_tracking_uri(store)), scheduled=scheduled_deployments, studies=names,
        study=study, prefect=page("").rstrip("/"), budget_usd=options.budget_usd,
    )  # fmt: skip

    access = Access(os.environ.get(PASSWORD, ""), options.user_header or "", options.prefix.rstrip("/"))
    app = make_app(sources, options.host, access)
    try:
        server = create_server(app, host=options.host, port=options.port, threads=8, ident="superworkflow")
    except (OSError, ValueError):
        raise UserError("cannot listen on this address", where="--host, --port", value=f"{options.host}:{options.port}",
                        remedy="Choose another port with --port, or 0 for any free one") from None  # fmt: skip
    if not access.is_guarded and options.host not in (*LOCAL, "::1"):
        words = f"warning: anyone who reaches {options.host} reads these pages: set {PASSWORD}, or give --user-header"
        print(words, "behind a proxy that authenticates", file=sys.stderr)
    host = f"[{options.host}]" if ":" in options.host else options.host
    print(f"http://{host}:{server.effective_port}{access.prefix}", flush=True)
    print("Ctrl-C ends it.", file=sys.stderr)
    try:
        server.run()
    finally:
        server.close()
    return 0


def _studies(url: str | None, store: Location) -> Studies:
    """Functions that list the studies, and open one of them with its report."""
    from superworkflow.sweeps.storage import StudyStorage, default_storage_url, study_names
    from superworkflow.sweeps.study import SweepStudy
    from superworkflow.sweeps.summary import report

    found = url or default_storage_url(store)
    opened: list[StudyStorage] = []

    def storage() -> StudyStorage | None:
        if not opened and StudyStorage.exists(found):  # opening would create it
            opened.append(StudyStorage(found))
        return opened[0] if opened else None

    def names() -> list[str]:
        existing = storage()
        return study_names(existing) if existing is not None else []

    def study(name: str) -> tuple[Study, Mapping[str, Any]] | None:
        existing = storage()
        if existing is None:
            return None
        try:
            opened_study = SweepStudy.open(existing, name)
        except UserError:  # not made by a sweep, or removed since
            return None
        return opened_study.optuna, report(opened_study).document()

    return names, study
