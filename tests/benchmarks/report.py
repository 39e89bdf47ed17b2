"""Rows of the comparison, as table, JSON document and picture."""

import datetime
import importlib.metadata
import math
import os
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from superworkflow.tasks.lib.kernels.ceilings import measure_machine, processor_name

LOWER_IS_BETTER = ("s", "CPU s", "bytes", "updates")
"""Units of cost; all others are rates."""
_OURS = ("numpy", "numba", "duckdb", "torch")
_PEERS = ("ensmallen", "pecanpy", "gensim", "pyspark", "networkx", "numba", "numpy")


@dataclass(frozen=True)
class Row:
    """One comparison: our figure and a peer's, medians of alternating rounds on the same machine.

    Args:
        name: what was done, on what.
        peer_name: against whom.
        unit: of both figures: a rate such as `steps/s`, or `s` or `CPU s`.
        target: least ratio; the ratio says how many times better we are. None on a graph that no target is meant for.
        ours, peer: figures, None where there is none: then the row failed.
        cpu: our CPU seconds per unit of work and the peer's, for a second ratio that other load disturbs less.
        quality_ours, quality_peer: such as `{"micro_f1": 0.38, "macro_f1": 0.22}`, or `{"accuracy": 0.7}`.
        note: what has to be known to read the figures, or why there is none.
    """

    name: str
    peer_name: str
    unit: str
    target: float | None
    ours: float | None = None
    peer: float | None = None
    cpu: tuple[float, float] | None = None
    quality_ours: dict[str, float] | None = None
    quality_peer: dict[str, float] | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ratio by which ours is better; None if a figure is missing."""
        if not self.ours or not self.peer:
            return None
        return self.peer / self.ours if self.unit in LOWER_IS_BETTER else self.ours / self.peer

    @property
    def ratio_cpu(self) -> float | None:
        """The same by CPU time."""
        return self.cpu[1] / self.cpu[0] if self.cpu and self.cpu[0] else None

    @property
    def failed(self) -> bool:
        """True if there is nothing to compare."""
        return self.ratio is None or not math.isfinite(self.ratio)

    @property
    def met(self) -> bool | None:
        """True if the target is met; None if the row has none."""
        if self.failed or self.target is None:
            return False if self.failed else None
        return self.ratio is not None and self.ratio >= self.target

    def document(self) -> dict[str, Any]:
        """The row as JSON."""
        return {
            "name": f"{self.name} / {self.peer_name}", "ours": self.ours, "peer": self.peer, "unit": self.unit,
            "ratio": rounded(self.ratio), "target": self.target, "quality_ours": self.quality_ours,
            "quality_peer": self.quality_peer, "ratio_cpu": rounded(self.ratio_cpu), "met": self.met,
            "failed": self.failed, "note": self.note,
        }  # fmt: skip


@dataclass
class Report:
    """All rows with where and when they were measured."""

    command: str
    rows: list[Row] = field(default_factory=list)
    date: str = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).date().isoformat())
    machine: str = field(default_factory=lambda: machine())
    ceilings: dict[str, Any] = field(default_factory=lambda: ceilings())
    load: list[float] = field(default_factory=lambda: loads())
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def failures(self) -> list[str]:
        """The rows that failed, with why."""
        return [f"{row.name} / {row.peer_name}: {row.note}" for row in self.rows if row.failed]

    def document(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "rows": [row.document() for row in self.rows], "date": self.date, "machine": self.machine,
            "ceilings": self.ceilings, "command": self.command, "versions": self.versions,
            "load_at_start": self.load, "load_at_end": loads(), "seconds": round(self.seconds),
        }  # fmt: skip

    def table(self) -> str:
        """The rows as a Markdown table, with the notes below it."""
        lines = [
            "| work | peer | ours | peer's | ratio | by CPU | target | quality (micro / macro, or accuracy) |",
            "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
        ]
        for row in self.rows:
            ours, peer = figure(row.ours, row.unit), figure(row.peer, row.unit)
            ratio = "failed" if row.failed else times(row.ratio) + (" ✗" if row.met is False else "")
            quality = " vs ".join(_shown(each) for each in (row.quality_ours, row.quality_peer) if each)
            lines.append(
                f"| {row.name} | {row.peer_name} | {ours} | {peer} | {ratio} | "
                f"{times(row.ratio_cpu)} | {times(row.target)} | {quality} |"
            )
        notes = [f"- {row.name} / {row.peer_name}: {row.note}" for row in self.rows if row.note]
        return "\n".join(lines + (["", *notes] if notes else []))

    def picture(self, path: Path) -> None:
        """Bars of ratio over target, on a logarithmic scale; what lies right of the line meets its target.

        A row without a target is not drawn, one that failed has no bar.
        """
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        drawn = [row for row in self.rows if row.target or row.failed]
        picture = Figure(figsize=(9, 0.8 + 0.42 * max(1, len(drawn))), dpi=130, layout="constrained")
        FigureCanvasAgg(picture)
        axes = picture.subplots()
        shares = [1.0 if row.failed else (row.ratio or 0.0) / (row.target or 1.0) for row in drawn]
        axes.barh(
            [f"{row.name}\nvs {row.peer_name}" for row in drawn], [share - 1 for share in shares], left=1,
            color=["#2b7a4b" if row.met else "#c2571a" for row in drawn], height=0.62,
        )  # fmt: skip
        axes.set_xscale("log", base=2)
        low, high = min([0.5, *shares]), max([2.0, *shares])
        axes.set_xlim(low / 1.6, high * 2.2)
        for place, (row, share) in enumerate(zip(drawn, shares, strict=True)):
            text = "failed" if row.failed else f"{times(row.ratio)} (target {times(row.target)})"
            axes.text(max(share, 1.0) * 1.05, place, text, va="center", size=7)
        axes.axvline(1, color="black", linewidth=1)
        axes.invert_yaxis()
        axes.tick_params(axis="y", labelsize=7)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel(f"ratio to the peer, divided by its target · {self.date} · {self.machine}", size=7)
        axes.spines[["top", "right"]].set_visible(False)
        picture.savefig(path)


def times(ratio: float | None) -> str:
    """A ratio for people: `41×`, `3.2×`, `–`."""
    if ratio is None:
        return "–"
    return f"{ratio:.0f}×" if ratio >= 10 else f"{ratio:.2g}×"


def figure(value: float | None, unit: str) -> str:
    """A figure with its unit: `267M steps/s`, `4.1 s`."""
    if value is None:
        return "–"
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{suffix} {unit}"
    return f"{value:.3g} {unit}"


def rounded(value: float | None) -> float | None:
    """Four significant digits; None stays, and what is not finite becomes None."""
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None


def machine() -> str:
    """Processor, cores and memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{processor_name()}, {memory:.0f} GiB, Linux"


def ceilings() -> dict[str, Any]:
    """Ceilings of one core, and the variants of kernels that ours ran."""
    facts = measure_machine()
    return {
        "arithmetic, FLOP/s": rounded(facts.arithmetic), "memory, random reads/s": rounded(facts.memory),
        "variants": {choice.name: choice.chosen for choice in facts.choices},
    }  # fmt: skip


def loads() -> list[float]:
    """Processes that wanted a core, over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def own_versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in _OURS}


def peer_versions(requirements: str) -> dict[str, str]:
    """Versions of the best-known peers, from the pinned file."""
    pinned = dict(line.split("==") for line in requirements.splitlines() if "==" in line)
    return {name: pinned[name] for name in _PEERS if name in pinned}


def _shown(quality: dict[str, float]) -> str:
    """Micro- and Macro-F1, or whatever else there is."""
    return " / ".join(f"{quality[name]:.3f}" for name in ("micro_f1", "macro_f1", "accuracy") if name in quality)
