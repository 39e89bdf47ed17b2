"""Content of a run's page and its report, and the format of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from superworkflow.dashboards.web import figures
from superworkflow.dashboards.web.stages import fits, profile_lines, shipped_prices, timeline, used_text
from superworkflow.infra.contract.metrics import figures as quality_figures
from superworkflow.infra.contract.metrics import headlines
from superworkflow.infra.contract.resources import format_bytes, format_seconds, format_usd
from superworkflow.infra.tracking.run_reader import DetailedRun, RecordedStageRun

TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"
PRICES_TAG = "superworkflow.prices"

_STATES = {"FINISHED": "completed", "FAILED": "failed", "RUNNING": "running", "KILLED": "stopped"}


def run_content(run: DetailedRun, stages: Sequence[RecordedStageRun], prefect: str = "") -> dict[str, Any]:
    """Content of the template of a run.

    Args:
        run: the run.
        stages: its stages.
        prefect: address of its page in Prefect; empty if there is none.
    """
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
        "headlines": order,
    }  # fmt: skip


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
