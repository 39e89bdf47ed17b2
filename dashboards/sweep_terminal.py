"""Tables of a sweep on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from superworkflow.dashboards.whole_table import TableColumn, console, print_whole
from superworkflow.infra.contract.resources import format_seconds, format_usd

LAST = 15
"""Most trials that are listed."""


def print_sweep(report: Mapping[str, Any], *, result: bool = False) -> None:
    """Summary of a study.

    Args:
        report: the document of a sweep's report.
        result: print to standard output, where it is the command's result.
    """
    out = _out(result)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(report["counts"].items()))
    out.print(f"\n[bold]{escape(report['study'])}[/bold]: {report['finished']} of {report['target']} trials ended")
    out.print(f"{counts or 'none yet'}; sampler {report['sampler']}, pruner {report['pruner']}")
    trials = report["trials"]
    if trials:
        _print(out, report, trials[-LAST:], f"last {min(LAST, len(trials))} trials")
    paid, alone = report["paid_usd"], report["without_reuse_usd"]
    share = f", {1 - paid / alone:.0%}" if alone else ""
    out.print(
        f"Paid {format_usd(paid)} ({format_seconds(report['paid_s'])} of stages); without reuse "
        f"{format_usd(alone)} ({format_seconds(report['without_reuse_s'])}): reuse saved "
        f"{format_usd(report['saved_usd'])}{share}."
    )
    names = list(dict.fromkeys([*report["computed"], *report["reused"]]))
    shown = ", ".join(f"{n} {report['computed'].get(n, 0)}/{report['reused'].get(n, 0)}" for n in names)
    out.print(f"Computed/reused: {shown or 'nothing'}.")
    print_best(report, result=result)
    if report["model"]:
        out.print(f"model        {escape(report['model'])}")


def print_best(report: Mapping[str, Any], *, result: bool = False) -> None:
    """The best trial with its parameters, or the Pareto front."""
    out = _out(result)
    best = report["best"]
    if not best:
        done = report["counts"].get("complete")
        out.print("No complete trial is within --trial-budget-usd." if done else "No trial is complete.")
        return
    front = len(report["objectives"]) > 1
    _print(out, report, best, "Pareto front" if front else "best trial")
    if not front:
        settings = " ".join(f"{name}={value}" for name, value in best[0]["params"].items())
        out.print(f"To run it alone: superworkflow run … --set {escape(settings)}", soft_wrap=True)


def _out(result: bool) -> Console:
    return console(160, result=True) if result else console()


def _print(out: Console, report: Mapping[str, Any], rows: list[Mapping[str, Any]], title: str) -> None:
    objectives = [each["name"] for each in report["objectives"]]
    names = list(dict.fromkeys(name for row in rows for name in row["params"]))
    columns = [TableColumn("trial", right=True), TableColumn("state"), *(TableColumn(each, right=True) for each in (
        *objectives, "paid", "reused", *names))]  # fmt: skip
    colours = {"complete": "green", "pruned": "yellow", "failed": "red"}
    cells = []
    for row in rows:
        colour = colours.get(row["state"], "dim")
        values = [f"{value:.4g}" for value in row["values"]] if row["values"] else ["-"] * len(objectives)
        cells.append([
            str(row["number"]), f"[{colour}]{row['state']}[/{colour}]", *values, format_usd(row["paid_usd"]),
            format_usd(row["reused_usd"]), *(escape(_short(row["params"].get(name, ""))) for name in names),
        ])  # fmt: skip
    print_whole(out, columns, cells, title)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
