"""Work of training on whole graphs against that of libraries, in CPU seconds of one thread; see `own/gathers.py`."""

from __future__ import annotations

from collections.abc import Callable

from tests.benchmarks.graphs import short
from tests.benchmarks.measure import alternate, median
from tests.benchmarks.report import Row
from tests.benchmarks.setting import Setting

GATHER, SMALL_GATHER = (200_000, 4_000_000, 64), (5_000, 100_000, 64)
"""Vertices, arcs and columns."""
PEERS = {"torch": ("torch.sparse", 7.0), "scipy": ("SciPy", 12.0)}
"""Names of the peers, and targets."""
OURS = ("float32", "bfloat16")
APART = {"float32": 1e-3, "bfloat16": 1.0}
"""Most that a sum may differ from SciPy's."""


def gather(setting: Setting) -> list[Row]:
    """Sums of neighbours' rows."""
    vertices, arcs, width = SMALL_GATHER if setting.quick else GATHER
    with setting.own("gathers", vertices, arcs, width) as own:
        for name, most in APART.items():
            assert own.facts["apart"][name] < most, own.facts
        sides = {name: lambda name=name: own.ask(side=name)["cpu_s"] for name in (*OURS, *PEERS)}  # type: ignore[misc]
        seconds = {name: median(found) for name, found in alternate(sides, 2 * setting.rounds).items()}
    setting.say(", ".join(f"{name} {each * 1e3:.1f} ms" for name, each in seconds.items()))
    return [
        Row(
            f"gather, {short(vertices)} vertices, {short(arcs)} arcs, width {width}, {name}", peer, "CPU s",
            setting.target(target), seconds[name], seconds[key],
        )
        for name in OURS for key, (peer, target) in PEERS.items()
    ]  # fmt: skip


ROWS: dict[str, Callable[[Setting], list[Row]]] = {"full-graph-gather": gather}
