"""Recorded runs as a list, and two of them side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rich.markup import escape
from rich.table import Table

from superworkflow.dashboards.whole_table import TableColumn, console, print_whole
from superworkflow.infra.contract.metrics import headlines, uncertainties
from superworkflow.infra.contract.resources import format_bytes, format_seconds, format_usd
from superworkflow.infra.tracking.history import RecordedRun

T = TypeVar("T")


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side; each pair is (first, second), None for a value that a run lacks.

    Args:
        params: only those that differ.
        sources: digests of the sources that differ.
        seconds: runtime of each stage; 0 when it was cached, None when it was never reached.
        cost_usd: cost of each stage.
        memory_bytes: peak memory of each stage; 0 when it was cached.
        uncertainties: names of the metrics that are standard deviations of others.
    """

    first: str
    second: str
    params: dict[str, tuple[str | None, str | None]]
    metrics: dict[str, tuple[float | None, float | None]]
    seconds: dict[str, tuple[float | None, float | None]]
    cost_usd: dict[str, tuple[float | None, float | None]]
    memory_bytes: dict[str, tuple[float | None, float | None]]
    totals: dict[str, tuple[float | None, float | None]]
    uncertainties: tuple[str, ...] = ()
    sources: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)


def compare(first: RecordedRun, second: RecordedRun) -> Comparison:
    """Put two recorded runs side by side."""
    return Comparison(
        first=f"{first.name} ({first.run_id[:8]})",
        second=f"{second.name} ({second.run_id[:8]})",
        params=_different(first.params, second.params),
        metrics=_pairs(first.metrics, second.metrics),
        seconds=_pairs(*({n: s.get("seconds", 0.0) for n, s in run.stages.items()} for run in (first, second))),
        cost_usd=_pairs(*({n: s.get("cost_usd", 0.0) for n, s in run.stages.items()} for run in (first, second))),
        memory_bytes=_pairs(
            *({n: s.get("peak_memory_bytes", 0.0) for n, s in run.stages.items()} for run in (first, second))
        ),
        totals=_pairs(_with_full_cost(first.totals), _with_full_cost(second.totals)),
        uncertainties=tuple(name for run in (first, second) for name in uncertainties(run.metrics, run.declared)),
        sources=_different(first.sources, second.sources),
    )


def _with_full_cost(totals: Mapping[str, float]) -> dict[str, float]:
    """Totals, with the cost of the run without any cached stage."""
    if not {"cost_usd", "saved_by_cache_usd"} <= totals.keys():
        return dict(totals)
    return {**totals, "full_cost_usd": totals["cost_usd"] + totals["saved_by_cache_usd"]}


def _different(first: Mapping[str, T], second: Mapping[str, T]) -> dict[str, tuple[T | None, T | None]]:
    return {name: pair for name, pair in _pairs(first, second).items() if pair[0] != pair[1]}


def _pairs(first: Mapping[str, T], second: Mapping[str, T]) -> dict[str, tuple[T | None, T | None]]:
    names = [*first, *(name for name in second if name not in first)]
    return {name: (first.get(name), second.get(name)) for name in names}


def print_runs(runs: Sequence[RecordedRun]) -> None:
    """The list, newest first."""
    out = console(150, result=True)
    if not runs:
        out.print("no recorded runs here; `superworkflow run` makes one")
        return
    columns = [
        TableColumn("run"), TableColumn("name"), TableColumn("superworkflow", drop=2), TableColumn("started (UTC)"),
        TableColumn("status"), TableColumn("runtime", right=True, drop=1),
        TableColumn("peak memory", right=True, drop=4), TableColumn("cost", right=True),
        TableColumn("ran", right=True, drop=5), TableColumn("cached", right=True, drop=6),
        TableColumn("quality"), TableColumn("tags", drop=3),
    ]  # fmt: skip
    rows = []
    for run in runs:
        quality = [f"{each.name} {each.value:.3f}"
                   for each in headlines(run.metrics, run.declared)]  # fmt: skip
        tags = [f"{name}={value}" if value else name for name, value in run.own_tags.items()]
        rows.append([
            run.run_id[:8], escape(run.name), escape(run.superworkflow), f"{run.started:%Y-%m-%d %H:%M}",
            ", ".join(filter(None, [run.status.lower(), run.outcome + (f" {run.times}×" if run.times > 1 else "")])),
            format_seconds(run.totals.get("seconds", 0.0)), format_bytes(run.totals.get("peak_memory_bytes", 0.0)),
            format_usd(run.totals.get("cost_usd", 0.0)),
            f"{run.totals.get('stages_ran', 0):.0f}", f"{run.totals.get('stages_cached', 0):.0f}",
            escape("\n".join(quality)), escape("\n".join(tags)),
        ])  # fmt: skip
    print_whole(out, columns, rows)


def print_comparison(comparison: Comparison) -> None:
    """Side by side: parameters that differ, quality, runtime and cost for each stage."""
    out = console(120, result=True)
    table = Table()
    table.add_column("", overflow="fold")  # not cut: metrics differ in their last letters
    table.add_column(comparison.first, justify="right", overflow="fold")
    table.add_column(comparison.second, justify="right", overflow="fold")
    table.add_column("second / first", justify="right")
    _section(table, "parameters that differ")
    for name, pair in comparison.params.items():
        table.add_row(name, *(str(value) if value is not None else "-" for value in pair), "")
    if not comparison.params:
        table.add_row("none", "", "", "")
    if comparison.sources:
        _section(table, "sources that differ")
    for name, digests in comparison.sources.items():
        table.add_row(name, *(digest[:12] if digest is not None else "-" for digest in digests), "")
    _section(table, "quality")
    for name, values in comparison.metrics.items():
        if name not in comparison.uncertainties:
            table.add_row(name, *(_number(value, "{:.4f}".format) for value in values), _ratio(*values))
    figures = (
        ("runtime", comparison.seconds, format_seconds),
        ("cost", comparison.cost_usd, format_usd),
        ("peak memory", comparison.memory_bytes, format_bytes),
    )
    for title, stages, text in figures:
        _section(table, title)
        for name, values in stages.items():
            took = comparison.seconds.get(name, values)  # 0 where the stage was cached, None where it was never reached
            shown = [
                "cached" if s == 0 else _number(value or None, text) for s, value in zip(took, values, strict=True)
            ]
            table.add_row(name, *shown, _ratio(*values))
    _section(table, "totals")
    totals = {
        "runtime": ("seconds", format_seconds),
        "cost": ("cost_usd", format_usd),
        "saved by the cache": ("saved_by_cache_usd", format_usd),
        "cost without the cache": ("full_cost_usd", format_usd),
        "value, 1 / (s × USD)": ("value", "{:.4g}".format),
        "peak memory": ("peak_memory_bytes", format_bytes),
    }
    for title, (name, shown_as) in totals.items():
        values = comparison.totals.get(name, (None, None))
        table.add_row(title, *(_number(value, shown_as) for value in values), _ratio(*values))
    out.print(table)


def _section(table: Table, title: str) -> None:
    table.add_section()
    table.add_row(f"[bold]{title}[/bold]", "", "", "")


def _number(value: float | None, text: Callable[[float], str]) -> str:
    return "-" if value is None else text(value)


def _ratio(first: float | None, second: float | None) -> str:
    ratio = second / first if first and second else 0.0
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}" if ratio else ""
