"""`superworkflow check`: whether a cluster can do what a profile asks for, or how fast this machine computes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.markup import escape
from rich.table import Table

from superworkflow.dashboards.whole_table import console
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.profile import load_profile, profile_names
from superworkflow.infra.config.request import default_store


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--profile", default="kubernetes", help=f"profile to check: {', '.join(profile_names())} or a file"
    )
    parser.add_argument("--store", default=default_store(), metavar="URI", help="store that pods must be able to write")
    parser.add_argument(
        "--machine", action="store_true",
        help="instead of a cluster: the variants of kernels that this machine runs, and its ceilings of arithmetic and "
        "memory on one core",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Check; the exit status is 0 (all well) or 1."""
    return _machine(options.json) if options.machine else _cluster(options)


def _machine(as_json: bool) -> int:
    from superworkflow.tasks.lib.kernels.ceilings import measure_machine

    facts = measure_machine()
    if as_json:
        print(json.dumps(asdict(facts), indent=1))
        return 0
    table = Table("", "", "", show_header=False, box=None)
    table.add_row("processor", escape(facts.processor), "")
    for choice in facts.choices:
        rates = ", ".join(f"{name} {_rate(rate, choice.unit)}" for name, rate in choice.rates.items())
        table.add_row(choice.name, choice.chosen + (" (forced)" if choice.forced else ""), rates)
    table.add_row("arithmetic", _rate(facts.arithmetic, "FLOP/s"), "ceiling of products, one core")
    table.add_row("memory", _rate(facts.memory, "reads/s"), "ceiling of random reads, one core")
    console(200, result=True).print(table)
    return 0


def _rate(value: float, unit: str) -> str:
    for limit, prefix in ((1e9, "G"), (1e6, "M")):
        if value >= limit:
            return (
                f"{value / limit:,.0f} {prefix}{unit}" if unit == "FLOP/s" else f"{value / limit:,.0f}{prefix} {unit}"
            )
    return f"{value:,.0f} {unit}"


def _cluster(options: argparse.Namespace) -> int:
    profile = load_profile(options.profile)
    if profile.launcher != "kubernetes":
        raise UserError(
            "this profile runs no stage on Kubernetes", where="--profile", value=options.profile,
            remedy="Choose one with `launcher: kubernetes`",
        )  # fmt: skip
    from superworkflow.infra.launch.kubernetes.job_admin import with_cluster
    from superworkflow.infra.launch.kubernetes.preflight import preflight

    # Nobody wants to wait for a cluster that is not there; a run is more patient.
    settings = profile.kubernetes.model_copy(update={"unreachable_patience_s": 15.0})
    checks = with_cluster(settings, lambda api: preflight(api, profile, options.store))
    if options.json:
        print(json.dumps([asdict(check) for check in checks], indent=1))
    else:
        table = Table("", "check", "", show_header=False, box=None)
        for check in checks:
            mark = {True: "[green]ok[/green]", False: "[red]no[/red]", None: "[yellow]?[/yellow]"}[check.ok]
            table.add_row(mark, escape(check.name), escape(check.detail))
        console(200, result=True).print(table)
    return 1 if any(check.ok is False for check in checks) else 0
