"""Pages of the dashboard: GET only, and only under this machine's names unless they are bound to another address."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

from flask import Blueprint, Flask, Response, abort, current_app, render_template, request
from werkzeug.exceptions import HTTPException

from superworkflow.dashboards.web import figures, frames
from superworkflow.dashboards.web.access import Access
from superworkflow.dashboards.web.content import FILTERS, STATIC, TEMPLATES, attachments, run_content
from superworkflow.dashboards.web.panels import MOST_BYTES, read_panel
from superworkflow.dashboards.web.plotly_js import plotly_js
from superworkflow.dashboards.web.run_index import RunIndex
from superworkflow.dashboards.web.storage_size import StorageSize
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.tracking.lineage import lineage
from superworkflow.infra.tracking.model_versions import CURRENT
from superworkflow.infra.tracking.run_details import DetailedRun
from superworkflow.infra.tracking.run_filter import OUTCOMES, RunFilter
from superworkflow.infra.tracking.run_reader import RunReader
from superworkflow.infra.tracking.tags import LOGS, PANELS

if TYPE_CHECKING:
    from optuna.study import Study

    from superworkflow.infra.orchestration.schedules import Scheduled

LISTED = 100
"""Runs of one page of the list."""
PERIODS = (7, 30, 90, 365)
COMPARED = 8
"""Most runs that a page compares."""
LOCAL = ("127.0.0.1", "localhost", "[::1]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-]*")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Forbids fetching from other hosts. Inline styles are allowed because Plotly writes them."""


@dataclass(frozen=True)
class Sources:
    """Sources that pages read.

    Args:
        store: URI of the store of these runs, shown on each page.
        runs: reads runs from MLflow.
        scheduled: deployments of Prefect's server; None if no server is named, an error's text if it is unreachable.
        studies: names of the sweeps' studies.
        study: one of them: Optuna's study and the document of its report.
        prefect: address of Prefect's pages; empty if no server is named.
        budget_usd: for a month.
        today: date in UTC.
    """

    store: str
    runs: RunReader
    scheduled: Callable[[], list[Scheduled] | str | None]
    studies: Callable[[], list[str]]
    study: Callable[[str], tuple[Study, Mapping[str, Any]] | None]
    prefect: str = ""
    budget_usd: float | None = None
    today: Callable[[], date] = frames.today


pages = Blueprint("pages", __name__)


def make_app(sources: Sources, host: str = "127.0.0.1", access: Access = Access()) -> Flask:  # noqa: B008
    """The dashboard as a WSGI application.

    Args:
        sources: the data to show.
        host: address to listen on. If it is local, requests for other names are refused, which prevents DNS rebinding:
            another site could otherwise point its own name here and read the pages. A password prevents that as well.
        access: conditions under which pages are shown.
    """
    app = Flask("superworkflow", static_folder=str(STATIC), template_folder=str(TEMPLATES))
    app.jinja_env.filters.update(FILTERS)
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.jinja_env.globals["store"] = sources.store
    app.jinja_env.globals["complete"] = lambda: current_app.extensions["runs"].complete
    app.extensions |= {"sources": sources, "runs": RunIndex(sources.runs), "host": host, "access": access}
    app.extensions["storage"] = StorageSize(sources.store)
    app.register_blueprint(pages)
    app.wsgi_app = access.guard(app.wsgi_app)  # type: ignore[method-assign, assignment]
    return app


def _sources() -> Sources:
    """Sources of the current application."""
    return cast("Sources", current_app.extensions["sources"])


def _runs() -> list[DetailedRun]:
    """All runs that the index has."""
    return cast("RunIndex", current_app.extensions["runs"])()


@pages.before_app_request
def only_known_names() -> None:
    """Refuse requests for other names than this machine's if the application listens on a local address."""
    local = current_app.extensions["host"] in (*LOCAL, "::1") and not current_app.extensions["access"].is_guarded
    if local and request.host.rsplit(":", 1)[0] not in LOCAL and request.host not in LOCAL:
        abort(403, "This page is shown on this machine's own names only.")


@pages.after_app_request
def guarded(answer: Response) -> Response:
    """Add headers against other sites and caches."""
    answer.headers["Content-Security-Policy"] = POLICY
    answer.headers["X-Content-Type-Options"] = "nosniff"
    answer.headers["Referrer-Policy"] = "no-referrer"
    if not request.path.startswith(("/static", "/plotly")):
        answer.headers["Cache-Control"] = "no-store"
    if answer.mimetype == "text/html":
        answer.set_data(current_app.extensions["access"].linked(answer.get_data()))
    return answer


@pages.app_errorhandler(HTTPException)
def refused(error: HTTPException) -> tuple[str, int]:
    """Page of an error."""
    return render_template("error.html", error=error, at=""), error.code or 500


@pages.get("/")
def overview() -> str:
    """Runs and costs of a period."""
    days = request.args.get("days", 30, type=int)
    days = days if days in PERIODS else 30
    chosen = request.args.get("superworkflow", "")
    runs, today = _runs(), _sources().today()
    names = sorted({run.superworkflow for run in runs})
    shown = [run for run in runs if chosen in ("", run.superworkflow)]
    recent = frames.since(shown, days, today)
    table, costs = frames.runs_frame(recent), frames.costs_frame(recent)
    month = frames.month(frames.runs_frame(shown), today)
    charts = {
        "superworkflow": figures.costs(frames.by_day(costs, "superworkflow", days, today)),
        "stage": figures.costs(frames.by_day(costs, "stage", days, today)),
        "month": figures.month_line(month, _sources().budget_usd),
    }
    return render_template(
        "overview.html", at="overview", days=days, periods=PERIODS, chosen=chosen, names=names,
        summary=frames.summary(table), month=month, budget=_sources().budget_usd, charts=charts, runs=recent[:15],
        costs=len(costs), headline=frames.headline, storage=current_app.extensions["storage"].read(),
    )  # fmt: skip


@pages.get("/deployments")
def deployments() -> str:
    """Deployments: their runs, drift and next start."""
    found = frames.deployments(_runs(), _sources().runs.versions())
    scheduled = _sources().scheduled()
    by_id = {each.id: each for each in scheduled} if isinstance(scheduled, list) else {}
    idle = [each for each in by_id.values() if each.id not in {history.id for history in found}]
    charts = {each.id: figures.history(each) for each in found if each.metric}
    drifts = {each.id: figures.lines(each.drift) for each in found if len(each.drift)}
    return render_template(
        "deployments.html", at="deployments", found=found, scheduled=by_id, idle=idle,
        server=scheduled, charts=charts, drifts=drifts,
    )  # fmt: skip


@pages.get("/run/<run_id>")
def run(run_id: str) -> str:
    """One run."""
    found = _sources().runs.run(run_id)
    if found is None:
        abort(404, "No run of this id is recorded here.")
    reader = _sources().runs
    stages = reader.stages(found)
    content = run_content(found, stages, _prefect_page(_sources(), found), reader.curves(found, stages))
    return render_template("run.html", at="", linked=True, **content, **attachments(reader, found))


@pages.get("/run/<run_id>/panel/<name>")
def panel(run_id: str, name: str) -> Response:
    """One panel of a run, as its page draws it."""
    found = read_panel(_file(run_id, f"{PANELS}/{name}.json", name))
    if found is None:
        abort(404, "The run has no such panel.")
    return Response(json.dumps(found), mimetype="application/json")


@pages.get("/run/<run_id>/picture/<name>.png")
def picture(run_id: str, name: str) -> Response:
    """One picture of a run."""
    return Response(_file(run_id, f"pictures/{name}.png", name), mimetype="image/png")


@pages.get("/run/<run_id>/log/<name>")
def log(run_id: str, name: str) -> str:
    """Log of one stage of a run."""
    found = _sources().runs.run(run_id)
    if found is None:
        abort(404, "No run of this id is recorded here.")
    text = _file(run_id, f"{LOGS}/{name}.txt", name).decode(errors="replace")
    return render_template("log.html", at="", run=found, name=name, text=text)


def _file(run_id: str, path: str, name: str) -> bytes:
    """A file of a run of a superworkflow.

    Raises:
        NotFound: there is none.
    """
    reader = _sources().runs
    found = reader.file(run_id, path) if _NAME.fullmatch(name) and reader.run(run_id) is not None else None
    if found is None or len(found) > MOST_BYTES:
        abort(404, "The run has no such file.")
    return found


@pages.get("/compare")
def compare() -> str:
    """Runs side by side."""
    runs = _runs()
    by_id = {each.run_id: each for each in runs}
    chosen = [by_id[each] for each in dict.fromkeys(request.args.getlist("run")) if each in by_id][:COMPARED]
    content: dict[str, Any] = {}
    if len(chosen) > 1:
        titles = {each.run_id: _title(each, chosen) for each in chosen}
        table = frames.qualities(chosen)
        costs = {
            titles[each.run_id]: {name: took.get("cost_usd", 0.0) for name, took in each.stages.items()}
            for each in chosen
        }
        reader = _sources().runs
        curves = {titles[each.run_id]: reader.curves(each, reader.stages(each)) for each in chosen}
        content = {
            "curves": figures.curves(curves), "titles": titles, "differing": frames.differing(chosen),
            "cells": frames.quality_texts(chosen), "metrics": list(dict.fromkeys(table["metric"])),
            "charts": {"quality": figures.spreads(table, titles), "cost": figures.stage_costs(costs)},
        }  # fmt: skip
    which, start = _filter(), max(0, request.args.get("start", 0, type=int))
    found = [run for run in runs if which.matches(run)] if which else runs
    content["choices"] = {
        "superworkflow": sorted({run.superworkflow for run in runs}), "outcome": OUTCOMES,
        "deployment": sorted({run.deployment for run in runs if run.deployment}),
    }  # fmt: skip
    pairs = [(name, value) for name, value in vars(which).items() if value]
    return render_template(
        "compare.html", at="compare", chosen=chosen, most=COMPARED, runs=found[start : start + LISTED], which=which,
        start=start, listed=LISTED, number=len(found), query=urlencode(pairs), headline=frames.headline, **content,
    )  # fmt: skip


def _filter() -> RunFilter:
    """The filter that the address names."""
    names = ("superworkflow", "deployment", "outcome", "tag", "text")
    try:
        return RunFilter(**{name: request.args.get(name, "").strip() for name in names})
    except UserError as error:
        abort(400, str(error))


@pages.get("/models")
def models() -> str:
    """Registered models: versions, moves of the alias, gates, drift."""
    reader, by_id = _sources().runs, {each.run_id: each for each in _runs()}
    found = reader.registry.listed()
    holds = {name: hold for name in found if (hold := reader.registry.hold(name)) is not None}
    for version in (each for versions in found.values() for each in versions):
        if version.run_id not in by_id and (older := reader.run(version.run_id)) is not None:
            by_id[version.run_id] = older
    moves = {name: frames.moves(versions) for name, versions in found.items()}
    champions = {name: next((each for each in rows if CURRENT in each.aliases), None) for name, rows in found.items()}
    charts = {name: figures.versions(rows) for name, rows in found.items() if len(rows) > 1}
    return render_template(
        "models.html", at="models", found=found, holds=holds, moves=moves, by_id=by_id, gates=frames.gates,
        drift=frames.drift_of, charts=charts, champions=champions,
    )  # fmt: skip


@pages.get("/data/<digest>")
def data(digest: str) -> str:
    """A source or dataset: what made it, and what was made of it."""
    reader = _sources().runs
    found = lineage(reader.client, digest, reader.versions())
    if found is None:
        abort(404, "No run has recorded data of this digest.")
    return render_template("data.html", at="", found=found, names={each.run_id: each.name for each in _runs()})


@pages.get("/sweeps")
def sweeps() -> str:
    """One study of a sweep."""
    names = _sources().studies()
    name = request.args.get("study", "") or (names[0] if names else "")
    study = _sources().study(name) if name in names else None
    if name and study is None:
        abort(404, "No study of this name is recorded here.")
    content: dict[str, Any] = {}
    if study is not None:
        from superworkflow.dashboards.web.sweep_figures import sweep_figures

        content = {"linked": True, "report": study[1], "figures": sweep_figures(*study)}
    return render_template("sweeps.html", at="sweeps", names=names, name=name, **content)


@pages.get("/plotly.js")
def plotly() -> Response:
    """The script of Plotly, which the pages load."""
    return Response(plotly_js(), mimetype="text/javascript", headers={"Cache-Control": "max-age=86400"})


def _title(run: DetailedRun, among: list[DetailedRun]) -> str:
    """Name of a run, with its id if others share the name."""
    alike = sum(each.name == run.name for each in among) > 1
    return f"{run.name} ({run.run_id[:6]})" if alike else run.name


def _prefect_page(sources: Sources, run: DetailedRun) -> str:
    flow_run = run.tags.get("superworkflow.flow_run_id", "")
    valid = sources.prefect and all(each in "0123456789abcdef-" for each in flow_run)
    return f"{sources.prefect}/runs/flow-run/{flow_run}" if valid and flow_run else ""
