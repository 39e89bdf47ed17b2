"""`superworkflow check`: whether a cluster can do what a profile asks for."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.profile import load_profile, profile_names
from superworkflow.infra.config.request import default_store


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--profile", default="kubernetes", help=f"profile to check: {', '.join(profile_names())} or a file"
    )
    parser.add_argument("--store", default=default_store(), metavar="URI", help="store that pods must be able to write")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Check; the exit status is 0 (all well) or 1."""
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
        out = Console(highlight=False)
        (out if out.is_terminal else Console(highlight=False, width=200)).print(table)
    return 1 if any(check.ok is False for check in checks) else 0
