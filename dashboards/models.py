"""Registered models as a list."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from superworkflow.dashboards.whole_table import console
from superworkflow.infra.tracking.model_versions import Move, Version


def print_models(models: Mapping[str, Sequence[Version]], holds: Mapping[str, Move]) -> None:
    """A table of versions, newest first, and the rollbacks that hold.

    Args:
        models: versions by registered name.
        holds: by registered name.
    """
    out = console(180, result=True)
    if not models:
        out.print("no registered models here; `superworkflow run --register NAME` makes one, and every deployment does")
        return
    table = Table()
    for title in ("model", "version", "alias", "quality", "run", "data", "when (UTC)", "why"):
        table.add_column(title, justify="right" if title == "version" else "left")
    for name, versions in models.items():
        for each in versions:
            quality = [f"{metric} {value:.3f}" for metric, value in each.quality.items()]
            table.add_row(
                escape(name), str(each.version), ", ".join(each.aliases), escape("\n".join(quality)), each.run_id[:8],
                data_digest(each.data)[:8], f"{each.created:%Y-%m-%d %H:%M}", escape(_why(each)),
            )  # fmt: skip
        table.add_section()
    out.print(table)
    for name, hold in holds.items():
        when = hold.when[:16].replace("T", " ")
        text = f"{name}: {hold.who} rolled back to version {hold.version} on {when} UTC ({hold.why})"
        out.print(f"[yellow]{escape(text)}; runs promote nothing until `superworkflow promote`[/yellow]")


def data_digest(data: Mapping[str, str]) -> str:
    """One digest for all sources of a version; empty if they are unknown."""
    text = "".join(f"{name}={digest};" for name, digest in sorted(data.items()))
    return hashlib.sha256(text.encode()).hexdigest() if text else ""


def _why(version: Version) -> str:
    """Decision on a version, and each move of `current` to it."""
    lines = [str(version.decision.get("why", ""))]
    lines += [
        f"{each.kind} {each.when[:16].replace('T', ' ')} by {each.who}: {each.why.removeprefix('promoted: ')}"
        for each in version.moves
    ]
    if version.moves and version.decision.get("verdict") == "promoted":
        del lines[0]  # the first move says the same
    return "\n".join(filter(None, lines))
