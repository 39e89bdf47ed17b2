"""From tables to TFRecords: a hundredth of OGBN-MAG's sizes, all of its 7,363 papers as seeds, as CPU seconds.

Ours are the three stages, each a process of its own, from Parquet tables. The peer is TF-GNN's `tfgnn_sampler` on
Beam's DirectRunner, which reads the same tables as TFRecords: it is given few seeds twice, and what a seed more takes
gives its time for all of them.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.mag import PAPERS, mag_tables, write_seeds
from tests.benchmarks.measure import Measured, PeerFailed, alternate, median, run_command
from tests.benchmarks.report import Row
from tests.benchmarks.rows_sampling import TFGNN
from tests.benchmarks.setting import Setting
from tests.benchmarks.stages import run_stage


def tables_to_records(setting: Setting) -> list[Row]:
    scale, few, some = (0.001, 4, 8) if setting.quick else (0.01, 8, 200)
    papers = int(PAPERS * scale)
    row = Row(f"tables to TFRecords, MAG / {round(1 / scale)}, {papers:,} papers", "tfgnn_sampler, DirectRunner", "s",
              setting.target(300))  # fmt: skip
    tables = mag_tables(setting, scale)
    try:
        if not TFGNN.exists():
            raise PeerFailed("make oracles sets up its environment")
        converted = tables.with_name(f"{tables.name}-tfrecords")
        if not (converted / "schema.pbtxt").exists():
            shutil.rmtree(converted, ignore_errors=True)
            _peer(setting, "convert", tables, converted)
        found = alternate(
            {
                "own": lambda: _own(setting, tables),
                "few": lambda: _sampled(setting, tables, converted, few).cpu_s,
                "some": lambda: _sampled(setting, tables, converted, some).cpu_s,
            },
            1,
        )
    except PeerFailed as error:
        return [Row(row.name, row.peer_name, row.unit, row.target, note=f"no figure of the peer: {error}")]
    ours, least, more = (median(found[side]) for side in ("own", "few", "some"))
    theirs = least + (papers - few) * (more - least) / (some - few)
    setting.say(f"{row.name}: {ours:.3g} CPU s, {row.peer_name} {theirs:.3g}")
    note = f"the peer's from {least:.0f} CPU s for {few} seeds and {more:.0f} for {some}; the rest extrapolated"
    return [Row(row.name, row.peer_name, row.unit, row.target, ours, theirs, (ours, theirs), note=note)]


def _own(setting: Setting, tables: Path) -> float:
    folder, spec = setting.folder / "tables-to-records", tables / "spec.pbtxt"
    graph, subgraphs = folder / "heterograph", folder / "sample"
    stages = (
        ("heterograph", {"graph": tables}, graph), ("sample", {"graph": graph, "spec": spec}, subgraphs),
        ("records", {"graph": graph, "subgraphs": subgraphs}, folder / "records"),
    )  # fmt: skip
    return sum(run_stage(setting, name, inputs, output).measured.cpu_s for name, inputs, output in stages)


def _sampled(setting: Setting, tables: Path, converted: Path, count: int) -> Measured:
    seeds, samples = write_seeds(tables, count, setting.folder / f"seeds-{count}.csv"), setting.folder / "samples"
    shutil.rmtree(samples, ignore_errors=True)
    made = _peer(setting, "sample", converted, tables / "spec.pbtxt", seeds, samples)
    if (found := made.document()["subgraphs"]) != count:
        raise PeerFailed(f"it made {found} subgraphs of {count} seeds")
    return made


def _peer(setting: Setting, *arguments: object) -> Measured:
    script = Path(__file__).parent / "peers" / "tfgnn_beam.py"
    command = [str(TFGNN), str(script), *map(str, arguments)]
    return run_command(command, setting.threads, setting.folder / "logs" / "tfgnn_beam.log", PeerFailed)


ROWS: dict[str, Callable[[Setting], list[Row]]] = {"tables-to-records": tables_to_records}
