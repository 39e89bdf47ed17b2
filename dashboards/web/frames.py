"""Frames of recorded runs: one pure function for each table or figure of a page."""

from __future__ import annotations

import contextlib
from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING

from superworkflow.infra.contract.metrics import Figure, drift_texts, figures, headlines
from superworkflow.infra.contract.registration import Gate
from superworkflow.infra.tracking.model_versions import Move, Version
from superworkflow.infra.tracking.run_details import DetailedRun
from superworkflow.infra.tracking.tags import UNCHANGED

if TYPE_CHECKING:  # reports of runs need no frame, and pandas takes long to import
    import pandas as pd

RUN_COLUMNS = (
    "run_id", "name", "superworkflow", "deployment", "trial", "status", "outcome", "started", "day", "cost_usd",
    "saved_usd", "wall_s",
)  # fmt: skip
COST_COLUMNS = ("day", "superworkflow", "stage", "run_id", "cost_usd")
DRIFT = "drift/"
"""Prefix of drift metrics."""


def runs_frame(runs: Sequence[DetailedRun]) -> pd.DataFrame:
    """A row for each run, `RUN_COLUMNS`, in USD and seconds."""
    import pandas as pd

    rows = [
        (run.run_id, run.name, run.superworkflow, run.deployment, run.is_trial, run.status, run.outcome, run.started,
         run.started.date(), run.totals.get("cost_usd", 0.0), run.totals.get("saved_by_cache_usd", 0.0),
         run.totals.get("wall_seconds", 0.0))
        for run in runs
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(RUN_COLUMNS))


def costs_frame(runs: Sequence[DetailedRun]) -> pd.DataFrame:
    """A row for each stage of each run that cost something, `COST_COLUMNS`."""
    import pandas as pd

    rows = [
        (run.started.date(), run.superworkflow, stage, run.run_id, took["cost_usd"])
        for run in runs
        for stage, took in run.stages.items()
        if took.get("cost_usd")
    ]
    return pd.DataFrame(rows, columns=list(COST_COLUMNS))


def headline(run: DetailedRun) -> Figure | None:
    """The first headline metric that a run reported, with its spread."""
    first = next(iter(headlines(run.metrics, run.declared)), None)
    if first is None:
        return None
    own = [each for each in run.declared if each.covers(first.name)]  # those of all figures would take a millisecond
    return next((each for each in figures(run.metrics, own) if each.name == first.name), None)


def since(runs: Sequence[DetailedRun], days: int, today: date) -> list[DetailedRun]:
    """Runs of the last `days` days, today included."""
    return [run for run in runs if run.started.date() > today - timedelta(days=days)]


def by_day(costs: pd.DataFrame, key: str, days: int, today: date) -> pd.DataFrame:
    """USD on each day of the period, in a column for each value of `key` (`superworkflow` or `stage`)."""
    period = [today - timedelta(days=back) for back in reversed(range(days))]
    table = costs.pivot_table(index="day", columns=key, values="cost_usd", aggfunc="sum", fill_value=0.0)
    order = table.sum().sort_values(ascending=False).index
    return table[order].reindex(period, fill_value=0.0)


@dataclass(frozen=True)
class Summary:
    """Summary of the runs of a period.

    Args:
        runs: all of them.
        ended_well: finished, including rejected and unchanged ones.
        failed: failed; runs stopped on purpose count neither way.
        running: still running.
        unchanged: had nothing to do.
        cost_usd: cost of all.
        saved_usd: cost that their cached stages saved.
    """

    runs: int
    ended_well: int
    failed: int
    running: int
    unchanged: int
    cost_usd: float
    saved_usd: float

    @property
    def success(self) -> float | None:
        """Share of successful runs among those that ended by themselves; None if none has."""
        ended = self.ended_well + self.failed
        return self.ended_well / ended if ended else None


def summary(table: pd.DataFrame) -> Summary:
    """Summary of a frame of runs."""
    states = table["status"].value_counts()
    return Summary(
        runs=len(table), ended_well=int(states.get("FINISHED", 0)), failed=int(states.get("FAILED", 0)),
        running=int(states.get("RUNNING", 0)), unchanged=int((table["outcome"] == UNCHANGED).sum()),
        cost_usd=float(table["cost_usd"].sum()), saved_usd=float(table["saved_usd"].sum()),
    )  # fmt: skip


@dataclass(frozen=True)
class Month:
    """Cost of a calendar month so far, and its projection.

    Args:
        days: (day, USD since the first of the month).
        spent_usd: until now.
        daily_usd: mean of the last `window` days.
        window: 14, or the days since the first run if those are fewer.
        forecast_usd: at the month's end, if its other days cost that mean.
    """

    first: date
    last: date
    days: tuple[tuple[date, float], ...]
    spent_usd: float
    daily_usd: float
    window: int
    forecast_usd: float


def month(table: pd.DataFrame, today: date) -> Month:
    """Forecast of the month that `today` is in, from a frame of all its runs."""
    first = today.replace(day=1)
    last = today.replace(day=monthrange(today.year, today.month)[1])
    costs = table.groupby("day")["cost_usd"].sum()
    per_day = [float(costs.get(first + timedelta(days=n), 0.0)) for n in range((today - first).days + 1)]
    sums = list(accumulate(per_day))
    begun = min(costs.index, default=today)
    width = max(1, min(14, (today - begun).days + 1))
    recent = sum(float(costs.get(today - timedelta(days=back), 0.0)) for back in range(width)) / width
    days = tuple((first + timedelta(days=n), value) for n, value in enumerate(sums))
    return Month(first, last, days, sums[-1], recent, width, sums[-1] + recent * (last - today).days)


@dataclass(frozen=True)
class Promotion:
    """One run of a deployment, with the figures that decided on its model.

    Args:
        quality: of its model when it was compared; else its headline.
        champion: quality of the model in use then, on the same data.
        tolerance: by which the model was allowed to be worse.
        metric: that `quality` is of.
    """

    run: DetailedRun
    quality: float | None
    champion: float | None
    tolerance: float
    gates: tuple[tuple[str, bool], ...] = ()
    metric: str = ""


@dataclass(frozen=True)
class DeploymentHistory:
    """A deployment by its runs, oldest first."""

    id: str
    name: str
    runs: tuple[Promotion, ...]

    @property
    def metric(self) -> str:
        """Metric by which its models are compared."""
        return next((each.metric for each in reversed(self.runs) if each.metric), "")

    @property
    def limits(self) -> list[Gate]:
        """Gates on that metric, of the last run that had any."""
        last = next((each.gates for each in reversed(self.runs) if each.gates), ())
        gates = []
        for text, _ in last:
            with contextlib.suppress(Exception):  # a limit of drift, or the registry was edited by hand
                gates.append(Gate.parse(text))
        return [gate for gate in gates if gate.metric in (self.metric, self.metric.partition("@")[0])]

    @property
    def drift(self) -> pd.DataFrame:
        """Drift metrics that runs recorded: a column for each, indexed by the start of the run.

        A count that is also recorded as a share is left out: on its scale all shares would look like 0.
        """
        import pandas as pd

        rows = {
            each.run.started: {
                name.removeprefix(DRIFT): value for name, value in each.run.figures.items() if name.startswith(DRIFT)
            }
            for each in self.runs
        }
        found = pd.DataFrame.from_dict({start: row for start, row in rows.items() if row}, orient="index")
        return found[[name for name in found.columns if f"{name}_share" not in found.columns]]


def deployments(runs: Sequence[DetailedRun], versions: Sequence[Version]) -> list[DeploymentHistory]:
    """Deployments that have run, the latest first."""
    own_versions = {each.run_id: each for each in versions}
    found: dict[str, list[DetailedRun]] = {}
    for run in sorted(runs, key=lambda run: run.started):
        if run.deployment_id:
            found.setdefault(run.deployment_id, []).append(run)
    histories = [
        DeploymentHistory(
            identity,
            own[-1].deployment or identity,
            tuple(_promotion(run, own_versions.get(run.run_id)) for run in own),
        )
        for identity, own in found.items()
    ]
    return sorted(histories, key=lambda each: each.runs[-1].run.started, reverse=True)


def moves(versions: Sequence[Version]) -> list[Move]:
    """Moves of the alias of a model, the latest first."""
    return sorted((move for each in versions for move in each.moves), key=lambda move: move.when, reverse=True)


def drift_of(run: DetailedRun | None) -> list[tuple[str, str]]:
    """Figures of drift of a run that are not 0, as text."""
    found = {} if run is None else run.figures
    drift = {name.removeprefix(DRIFT): value for name, value in found.items() if name.startswith(DRIFT)}
    return drift_texts({name: value for name, value in drift.items() if value}) or [("none", "")] * bool(drift)


def gates(version: Version) -> tuple[tuple[str, bool], ...]:
    """Gates of a version, checked because others may write to the registry."""
    found = version.decision.get("gates")
    return tuple((str(text), bool(passed)) for text, passed in found.items()) if isinstance(found, dict) else ()


def _promotion(run: DetailedRun, version: Version | None) -> Promotion:
    heads = [each for each in run.declared if each.headline]
    compared = sorted(heads, key=lambda each: each.precedence(run.metrics) or 0)  # as `decide` takes them
    first = next(iter(headlines(run.metrics, compared)), None)
    quality, metric = run.figures.get("promotion/quality"), str(version.decision.get("metric", "")) if version else ""
    if quality is None or not metric:  # not compared: by what it would be, which has another name and value
        found = metric if metric in run.metrics else first.name if first else ""
        quality, metric = quality if metric and quality is not None else run.metrics.get(found), found
    champion = run.figures.get("promotion/champion_quality")
    passed = gates(version) if version is not None else ()
    return Promotion(run, quality, champion, run.figures.get("promotion/tolerance", 0.0), passed, metric)


def differing(runs: Sequence[DetailedRun]) -> pd.DataFrame:
    """Parameters and sources that differ among runs: a row for each, a column for each run id; None if unset."""
    import pandas as pd

    names = list(dict.fromkeys(name for run in runs for name in run.params))
    table = {name: [run.params.get(name) for run in runs] for name in names}
    rows = {name: values for name, values in table.items() if len(set(values)) > 1}
    sources = list(dict.fromkeys(name for run in runs for name in run.sources))
    for name in sources:
        values = [run.sources.get(name) for run in runs]
        if len(set(values)) > 1:
            rows[f"source {name}"] = [value[:12] if value else None for value in values]
    return pd.DataFrame.from_dict(rows, orient="index", columns=[run.run_id for run in runs])


def qualities(runs: Sequence[DetailedRun]) -> pd.DataFrame:
    """A row for each figure of each run, headlines first: `run_id`, `metric`, `value`, `spread`, `headline`."""
    import pandas as pd

    rows = []
    for run in runs:
        heads = [each.name for each in headlines(run.metrics, run.declared)]
        order = {name: place for place, name in enumerate(heads)}
        found = figures(run.metrics, run.declared)
        for each in sorted(found, key=lambda each: order.get(each.name, len(order))):
            spread = float("nan") if each.spread is None else each.spread
            rows.append((run.run_id, each.name, each.value, spread, each.name in heads))
    return pd.DataFrame(rows, columns=["run_id", "metric", "value", "spread", "headline"])


def quality_texts(runs: Sequence[DetailedRun]) -> dict[tuple[str, str], str]:
    """Text of each figure with its spread, by run and metric."""
    return {(run.run_id, each.name): str(each) for run in runs for each in figures(run.metrics, run.declared)}


def today() -> date:
    """Date in UTC, as in records."""
    return datetime.now(UTC).date()
