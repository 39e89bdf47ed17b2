"""Content of a run's page and its report, and the format of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from superworkflow.dashboards.web import figures
from superworkflow.dashboards.web.stages import fits, profile_lines, shipped_prices, timeline, used_text
from superworkflow.infra.contract.metrics import figures as quality_figures
from superworkflow.infra.contract.metrics import headlines
from superworkflow.infra.contract.resources import format_bytes, format_seconds, format_usd
from superworkflow.infra.tracking.run_details import DetailedRun, RecordedStageRun
from superworkflow.infra.tracking.run_filter import STATUSES
from superworkflow.infra.tracking.tags import CHANGED_TAG, LOGS, PANELS_TAG, read_names, read_texts

if TYPE_CHECKING:  # a run writes its report without MLflow
    from superworkflow.infra.tracking.run_reader import RunReader

TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"
COSTS = "stages"
"""Picture of runtimes and costs, which the page has as a table."""
PRICES_TAG = "superworkflow.prices"

_STATES = {status: word for word, status in STATUSES.items()}

Courses = Mapping[str, Sequence[tuple[int, float]]]
"""Figures by step, by `node.figure`."""


def run_content(
    run: DetailedRun, stages: Sequence[RecordedStageRun], prefect: str = "", curves: Courses | None = None
) -> dict[str, Any]:
    """Content of the template of a run.

    Args:
        run: the run.
        stages: its stages.
        prefect: address of its page in Prefect; empty if there is none.
        curves: figures by step; by default those of the stages.
    """
    if curves is None:
        curves = {f"{each.name}.{name}": points for each in stages for name, points in each.course.items()}
    prices = shipped_prices(run.tags.get(PRICES_TAG, ""))
    phases, fit = timeline(stages, run.started), fits(stages, prices)
    quality = quality_figures(run.metrics, run.declared)
    order = {each.name: place for place, each in enumerate(headlines(run.metrics, run.declared))}
    saved = sum(each.saves_usd for each in fit if each.saves_usd is not None)
    charts = {"gantt": figures.gantt(phases)} if phases else {}
    if fit:
        charts["shares"] = figures.shares(fit)
    return {
        "run": run, "stages": stages, "phases": {each.stage.name: each for each in phases}, "fits": fit,
        "lines": profile_lines(fit), "saves_usd": saved, "prices": prices, "charts": charts, "prefect": prefect,
        "quality": sorted(quality, key=lambda each: order.get(each.name, len(order))),
        "headlines": order, "curves": figures.curves({"": curves}), "params": parameters(run),
        "logs": {each.name: "\n".join(each.log) for each in stages if each.log},
    }  # fmt: skip


def attachments(reader: RunReader, run: DetailedRun) -> dict[str, Any]:
    """Panels, pictures and logs of a run by their addresses."""
    place, names = f"/run/{run.run_id}", read_texts(run.tags.get(PANELS_TAG, ""))
    panels = [{"name": name, "title": title, "source": f"{place}/panel/{name}"} for name, title in names.items()]
    pictures = [each.removesuffix(".png") for each in reader.files(run.run_id, "pictures") if each.endswith(".png")]
    logs = [each.removesuffix(".txt") for each in reader.files(run.run_id, LOGS)]
    return {
        "panels": panels, "log_pages": {each: f"{place}/log/{each}" for each in logs},
        "pictures": {each: f"{place}/picture/{each}.png" for each in pictures if each != COSTS},
    }  # fmt: skip


def parameters(run: DetailedRun) -> tuple[dict[str, str], dict[str, str]]:
    """Parameters that are not the defaults, and all others; of runs that do not say so, none and all."""
    names = set(read_names(run.tags.get(CHANGED_TAG, "")) or ())
    changed = {name: value for name, value in run.params.items() if name in names}
    return changed, {name: value for name, value in run.params.items() if name not in names}


def state_of(run: DetailedRun) -> str:
    """State of a run in a word; the verdict on its model if the model was not promoted."""
    if run.status == "FINISHED" and run.outcome in ("rejected", "unchanged"):
        return run.outcome
    return _STATES.get(run.status, run.status.lower())


def moment(time: datetime | None) -> str:
    """Date and time, UTC."""
    return f"{time:%Y-%m-%d %H:%M}" if time is not None else ""


FILTERS: Mapping[str, Callable[..., str]] = {
    "usd": format_usd, "seconds": format_seconds, "size": format_bytes, "moment": moment, "state": state_of,
    "used": used_text,
}  # fmt: skip
"""Filters by which templates format values."""
