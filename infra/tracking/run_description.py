"""Summary at the top of a run's page, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from superworkflow.infra.base.masking import without_user
from superworkflow.infra.contract.metrics import Figure, drift_texts, figures, headlines
from superworkflow.infra.contract.resources import format_bytes, format_seconds, format_usd
from superworkflow.infra.tracking.records import RunRecord, Used

_DIGITS = 12
"""Characters of a digest that suffice to distinguish two by eye."""


def description(run: RunRecord, error: str = "") -> str:
    """Quality and cost in two lines, as more are folded; then stages with runtime and cost, and sources.

    Args:
        run: closed.
        error: why it ended early.
    """
    parts = [f"**{_cell(error)}**"] if error else []
    first = {each.name for each in headlines(run.metrics, run.declared)}
    if quality := [each for each in figures(run.metrics, run.declared) if each.name in first]:
        parts.append(", ".join(_quality(each) for each in quality))
    totals, places = run.totals(), [f"[this run in Prefect]({run.page})"] if run.page else []
    cached = [f"{totals['stages_cached']} of {len(run.stages)} stages cached"] if totals["stages_cached"] else []
    parts.append(", ".join([format_seconds(run.wall_s), format_usd(run.cost_usd), *cached, *places]))
    if run.stages:
        parts.append(_stages(run))
    if run.drift:
        parts.append("Drift: " + ", ".join(f"{_cell(name)} {text}" for name, text in drift_texts(run.drift)))
    if run.sources:
        parts.append("\n".join(_source(each) for each in run.sources))
    return "\n\n".join(parts)


def _quality(figure: Figure) -> str:
    compared = f" (baselines: {_cell(figure.baselines_text)})" if figure.baselines else ""
    return f"{_cell(figure.name)} **{figure}**{compared}"


def _stages(run: RunRecord) -> str:
    lines = ["| stage | state | runtime | CPU | peak memory | cost |", "| --- | --- | ---: | ---: | ---: | ---: |"]
    lines += [_row(record.name, record.state, _figures(record.took)) for record in run.stages]
    lines.append(_row("**total**", "", [f"**{each}**" for each in _figures(run.totals())]))
    if run.saved_usd:
        lines += ["", f"Cached stages saved {format_usd(run.saved_usd)}."]
    return "\n".join(lines)


def _row(name: str, state: str, figures: Sequence[str]) -> str:
    return f"| {' | '.join([name, state, *(figures if state != 'cached' else [''] * 3 + [figures[-1]])])} |"


def _figures(took: Mapping[str, float]) -> list[str]:
    return [
        format_seconds(took["seconds"]), format_seconds(took["cpu_seconds"]), format_bytes(took["peak_memory_bytes"]),
        format_usd(took["cost_usd"]),
    ]  # fmt: skip


def _source(used: Used) -> str:
    facts = [_fact(name, value) for name, value in used.facts.items() if isinstance(value, int)]
    place = without_user(str(used.facts.get("origin", used.uri)))
    return f"- {used.name}: {_cell(place)} ({', '.join([f'`{used.digest[:_DIGITS]}`', *facts])})"


def _fact(name: str, value: int) -> str:
    return format_bytes(value) if name == "bytes" else f"{value:,} {name.removesuffix('s') if value == 1 else name}"


def _cell(text: str) -> str:
    """Text of others, in which Markdown finds nothing to format."""
    return "".join(f"\\{each}" if each in "\\`*_{}[]<>#|" else each for each in " ".join(text.split()))
