"""Tables and progress on the terminal, all on standard error: standard output is for programs."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from superworkflow.dashboards.whole_table import console
from superworkflow.infra.base.masking import has_password
from superworkflow.infra.config.request import Request
from superworkflow.infra.contract.metrics import figures
from superworkflow.infra.contract.progress import progress_text
from superworkflow.infra.contract.resources import format_bytes, format_seconds, format_usd
from superworkflow.infra.launch.base import Event
from superworkflow.infra.planning.explain import Explanation
from superworkflow.infra.planning.plan import PlannedStage
from superworkflow.infra.tracking.links import DASHBOARD_VARIABLE, dashboard_page
from superworkflow.infra.tracking.records import RunRecord, StageRecord

SECONDS_BETWEEN, SECONDS_IN_FILES = 2.0, 60.0
"""Least seconds between progress lines of one stage, on a terminal and elsewhere."""


def program(name: str) -> str:
    """Command of a program of this environment: its name if that suffices, else its path."""
    path = Path(sys.executable).parent / name
    if shutil.which(name) == str(path) or not path.exists():
        return name
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


class RunDisplay:
    """Follows a run, line by line.

    Args:
        request: the run's request; its diagram gives the number of stages.
    """

    def __init__(self, request: Request):
        self._console = console()
        self._order = {name: place for place, name in enumerate(request.diagram.nodes, start=1)}
        self._last: dict[str, float] = {}
        self._first: dict[str, tuple[float, float]] = {}
        self._between = SECONDS_BETWEEN if self._console.is_terminal else SECONDS_IN_FILES
        uri = request.store.uri
        self._console.print(
            f"[bold]{request.superworkflow.name}[/bold]: {len(self._order)} stages, store {escape(uri)}"
        )

    def __call__(self, node: str, event: Event) -> None:
        """Show one event; see `infra.orchestration.flow.Listener`."""
        place = self._order.setdefault(node, len(self._order) + 1)  # what scores the champion again comes last
        head = f"[dim]{place:>2}/{len(self._order)}[/dim] [bold]{node:<16}[/bold]"
        if event["event"] == "begin":
            self._last[node] = time.monotonic()
            self._first.pop(node, None)
        elif event["event"] == "progress":
            now = time.monotonic()
            left = self._left(node, now, event)
            if now - self._last[node] >= self._between:
                self._last[node] = now
                self._console.print(f"{head} {escape(progress_text(event))}{left}")
        elif event["event"] == "log":
            self._console.print(f"{head} [dim]{escape(event['message'])}[/dim]")
        elif event["event"] == "failed":
            took = format_seconds(event["record"].runtime_s)
            self._console.print(f"{head} [red]failed[/red] after {took}, {format_usd(event['record'].cost_usd)}")
        elif event["event"] == "end":
            record = event["record"]
            if record.state == "cached":
                self._console.print(f"{head} [cyan]cached[/cyan] {record.rows:,} rows")
            else:
                took = format_seconds(record.runtime_s)
                if record.compile_s:
                    took += f" and {format_seconds(record.compile_s)} of compiling kernels"
                self._console.print(f"{head} [green]done[/green]   {record.rows:,} rows in {took}")

    def _left(self, node: str, now: float, event: Event) -> str:
        """Time that is left at the pace since the first progress, which a resumed stage does not begin at 0."""
        started, before = self._first.setdefault(node, (now, event["done"]))
        gained, rest = event["done"] - before, event["total"] - event["done"]
        if gained < 0:  # the stage started anew
            self._first[node] = now, event["done"]
        return f"  {format_seconds((now - started) * rest / gained)} left" if gained > 0 and rest > 0 else ""


def print_run(run: RunRecord, tracking_uri: str | None, tracking_page: str | None) -> None:
    """Print the result of a run: stages, totals, quality, paths and commands to inspect it.

    Args:
        run: closed.
        tracking_uri: where it is recorded; None where it is not.
        tracking_page: its address there.
    """
    out = console()
    table = Table(title=f"\n{run.superworkflow} · {run.name}", title_justify="left", title_style="bold")
    table.add_column("stage")
    table.add_column("state")
    compiled = any(record.compile_s for record in run.stages)
    for title in ("runtime", *(["compiling"] if compiled else []), "CPU time", "peak memory", "rows", "cost", "saved"):
        table.add_column(title, justify="right")
    for record in run.stages:
        ran = record.state == "ran"
        table.add_row(
            record.name,
            "[green]ran[/green]" if ran else "[cyan]cached[/cyan]",
            format_seconds(record.runtime_s) if record.runtime_s else "-",
            *([f"+ {format_seconds(record.compile_s)}" if record.compile_s else "-"] if compiled else []),
            format_seconds(record.cpu_s) if ran else "-",
            format_bytes(record.peak_memory_bytes) if ran else "-",
            f"{record.rows:,}",
            format_usd(record.cost_usd),
            format_usd(record.saved_usd) if record.saved_usd else "-",
        )
    totals = run.totals()
    table.add_section()
    table.add_row(
        "total",
        "",
        format_seconds(totals["seconds"]),
        *([f"+ {format_seconds(totals['compile_seconds'])}"] if compiled else []),
        format_seconds(totals["cpu_seconds"]),
        format_bytes(totals["peak_memory_bytes"]),
        "",
        format_usd(run.cost_usd),
        format_usd(run.saved_usd) if run.saved_usd else "-",
    )
    out.print(table)
    if compiled:
        out.print(
            "Kernels are compiled once per machine; runtime, CPU time and cost do not include it "
            f"({format_usd(run.compile_usd)} at the stages' prices)."
        )
    if run.unified_usd:
        saving = round(1 - run.cost_usd / run.unified_usd, 2)
        compared = f"saves {saving:.0%}" if saving > 0 else f"costs {-saving:.0%} more" if saving else "costs as much"
        out.print(
            f"One cluster sized for the largest stage and kept throughout would have cost "
            f"{format_usd(run.unified_usd)}; each stage with its own resources {compared}."
        )
    _print_warnings(out, run.stages)
    _print_quality(out, run)
    for decision in run.decisions:
        colour = {"promoted": "green", "rejected": "red"}.get(decision.verdict, "yellow")
        out.print(f"[{colour}]{escape(str(decision))}[/{colour}]", soft_wrap=True)
    for title, uri in run.outputs.items():
        out.print(f"{title:<12} {escape(uri)}", soft_wrap=True)
    _print_addresses(out, run, tracking_uri, tracking_page)


def _print_addresses(out: Console, run: RunRecord, tracking_uri: str | None, tracking_page: str | None) -> None:
    """Print the addresses of this run on running servers, else the command that starts one."""
    lines = []
    if run.page:
        lines = [(run.page, "in Prefect")]
    elif run.flow_run_id:
        page = f"http://127.0.0.1:4200/runs/flow-run/{run.flow_run_id}"
        lines = [(f"{program('prefect')} server start", f"then {page}")]
    if tracking_uri and tracking_page:
        if tracking_uri.startswith("http"):
            lines.append((tracking_page, "in MLflow"))
        else:
            named = '"$MLFLOW_TRACKING_URI"' if has_password(tracking_uri) else shlex.quote(tracking_uri)
            lines.append((f"{program('mlflow')} server --backend-store-uri {named}", f"then {tracking_page}"))
        page = dashboard_page(run.run_id)
        if os.environ.get(DASHBOARD_VARIABLE):
            lines.append((page, "on the dashboard"))
        else:
            start = f"{program('superworkflow')} dashboard --store {shlex.quote(run.store)}"
            lines.append((start, f"then {page}"))
    if lines:
        out.print("\nView this run:")
    for what, note in lines:
        out.print(f"    {escape(what)}    # {escape(note)}", soft_wrap=True)


def _print_warnings(out: Console, stages: Iterable[StageRecord | PlannedStage]) -> None:
    for stage in stages:
        for warning in stage.warnings:
            out.print(f"[yellow]{stage.name}: {escape(warning)}[/yellow]", soft_wrap=True)


def _print_quality(out: Console, run: RunRecord) -> None:
    made = {each.name for each in run.stages if each.state in ("ran", "cached")}
    for metric in run.declared:
        if metric.node in made and not metric.optional and not any(metric.covers(name) for name in run.metrics):
            out.print(f"[yellow]{metric.node}: the stage has not reported its metric {metric.full_name}[/yellow]")
    shown = figures(run.metrics, run.declared)
    if not shown:
        return
    table = Table(title="\nquality", title_justify="left", title_style="bold")
    table.add_column("metric")
    table.add_column("value", justify="right")
    compared = any(figure.baselines for figure in shown)
    if compared:
        table.add_column("baselines")
    for figure in shown:
        table.add_row(figure.name, str(figure), *([figure.baselines_text] if compared else []))
    out.print(table)


def print_plan(stages: Sequence[PlannedStage]) -> None:
    """Print the plan on standard output: it is the command's result."""
    out = console(140, result=True)
    table = Table(title="plan", title_justify="left", title_style="bold")
    for title in ("stage", "state"):
        table.add_column(title)
    gpus = any(stage.gpu_s for stage in stages)
    for title in ("memory", "of", "vCPUs", "CPU time", "start", "runtime", *(["GPU time"] if gpus else []), "cost",
                  "output", "basis"):  # fmt: skip
        table.add_column(title, justify="right")
    for stage in stages:
        run = stage.state == "run"
        memory = format_bytes(stage.memory_bytes)
        table.add_row(
            stage.name,
            "will run" if run else "[cyan]cached[/cyan]",
            memory if stage.memory_fits else f"[red]{memory}[/red]",
            format_bytes(stage.resources.memory),
            f"{stage.resources.cpu:g}",
            format_seconds(stage.cpu_s) if run else "-",
            format_seconds(stage.start_s) if run else "-",
            format_seconds(stage.seconds) if run else "-",
            *([format_seconds(stage.gpu_s) if stage.gpu_s else "-"] if gpus else []),
            format_usd(stage.cost_usd),
            format_bytes(stage.output_bytes),
            stage.basis if run else "-",
        )
        for group in stage.groups:
            each = format_bytes(group.memory_bytes)
            table.add_row(
                f"  {group.count} × {group.role}", stage.engine, each if group.fits else f"[red]{each}[/red]",
                format_bytes(group.given_bytes), f"{group.cpu:g}", format_seconds(group.cpu_s),
            )  # fmt: skip
    table.add_section()
    will_run = [stage for stage in stages if stage.state == "run"]
    most = max((stage.memory_bytes for stage in will_run), default=0)
    table.add_row(
        "total",
        f"{len(will_run)} of {len(stages)} run",
        format_bytes(most),
        "",
        "",
        format_seconds(sum(stage.cpu_s for stage in will_run)),
        "",
        format_seconds(sum(stage.seconds for stage in will_run)),
        *([format_seconds(sum(stage.gpu_s for stage in will_run))] if gpus else []),
        format_usd(sum(stage.cost_usd for stage in will_run)),
        format_bytes(sum(stage.output_bytes for stage in will_run)),
    )
    out.print(table)
    together, one_by_one = max((stage.end_s for stage in stages), default=0.0), sum(s.seconds for s in will_run)
    if will_run and together < 0.99 * one_by_one:
        out.print(f"End to end: {format_seconds(together)}, since stages run in parallel.")
    if any(not stage.runs for stage in will_run):
        out.print(
            "[dim]built-in: measured on the machine that this was developed on; "
            "runs in this store replace these figures.[/dim]"
        )
    _print_warnings(out, stages)
    for stage in stages:
        if not stage.memory_fits:
            out.print(
                f"[red]{stage.name}[/red] is expected to need {format_bytes(stage.memory_bytes)}; "
                f"its profile gives {format_bytes(stage.resources.memory)}. Choose a profile with more memory."
            )
        for group in stage.groups:
            if not group.fits:
                out.print(
                    f"each {group.role} of [red]{stage.name}[/red] is expected to need "
                    f"{format_bytes(group.memory_bytes)}; its profile gives {format_bytes(group.given_bytes)}. "
                    "Choose a profile with more memory."
                )
            if group.most and stage.state == "run":
                out.print(
                    f"{stage.name} may scale role {group.role} from {group.count} up to {group.most} members; "
                    f"the forecast assumes {group.count} throughout."
                )


def print_explanations(explanations: Sequence[Explanation]) -> None:
    """Print one line for each stage on standard output."""
    out = Console(highlight=False, emoji=False)
    width = max((len(explanation.name) for explanation in explanations), default=0)
    for explanation in explanations:
        colour = "cyan" if explanation.cached else "yellow"
        text = escape(str(explanation))
        out.print(f"[bold]{explanation.name:<{width}}[/bold] [{colour}]{text}[/{colour}]", soft_wrap=True)
