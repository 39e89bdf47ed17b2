"""Edge list file with string labels to compressed sparse rows: whole processes, from start to end."""

import sys
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.graphs import labelled_edges
from tests.benchmarks.measure import Measured, PeerFailed, alternate, median, run_command
from tests.benchmarks.report import Row
from tests.benchmarks.setting import Setting
from tests.benchmarks.stages import run_stage


def index(setting: Setting) -> list[Row]:
    """The index stage's command against networkx, ensmallen and DuckDB's bare read."""
    path, prefix, rows, prefix_rows = labelled_edges(setting)
    name = f"index, {rows / 1e6:g}M rows with string labels"

    def own() -> Measured:
        return run_stage(setting, "index", {"edges": path}, setting.data / "labelled-index").measured

    def bare_read() -> Measured:
        command = [sys.executable, "-m", "tests.benchmarks.own.duckdb_read", str(path), str(setting.threads)]
        return run_command(command, setting.threads, setting.folder / "logs" / "duckdb_read.log")

    peers: tuple[tuple[str, float, Callable[[], Measured]], ...] = (
        ("DuckDB's bare read", 1 / 3, bare_read),
        ("ensmallen", 2, lambda: setting.peer_command("ensmallen_index", path)),
        ("networkx", 50, lambda: _networkx(setting, prefix, rows / prefix_rows)),
    )
    return [_compare(setting, Row(name, peer, "s", setting.target(ratio)), own, run) for peer, ratio, run in peers]


ROWS: dict[str, Callable[[Setting], list[Row]]] = {"index": index}


def _networkx(setting: Setting, prefix: Path, factor: float) -> Measured:
    """A tenth of the file, its time times ten: all of it would take minutes and most of the memory."""
    measured = setting.peer_command("networkx_index", prefix)
    facts = measured.document()
    return Measured(facts["wall_s"] * factor, facts["cpu_s"] * factor, measured.peak_bytes, measured.output)


def _compare(setting: Setting, row: Row, own: Callable[[], Measured], peer: Callable[[], Measured]) -> Row:
    try:
        results = alternate({"own": own, "peer": peer}, 1 if row.peer_name == "networkx" else setting.rounds - 1)
    except PeerFailed as error:
        return Row(row.name, row.peer_name, row.unit, row.target, note=f"no figure: {error}")
    ours, theirs = (median([each.wall_s for each in results[side]]) for side in ("own", "peer"))
    cpu = [median([each.cpu_s for each in results[side]]) for side in ("own", "peer")]
    peaks = [max(each.peak_bytes for each in results[side]) / 2**30 for side in ("own", "peer")]
    setting.say(f"{row.name}: {ours:.1f} s, {row.peer_name} {theirs:.1f} s")
    note = f"peak memory {peaks[0]:.1f} GiB, the peer's {peaks[1]:.1f} GiB"
    if row.peer_name == "networkx":
        note += "; the peer read the first tenth of the file, its seconds are times ten"
    return Row(row.name, row.peer_name, row.unit, row.target, ours, theirs, cpu=(cpu[0], cpu[1]), note=note)
