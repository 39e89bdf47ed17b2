"""`make bench`, or `python -m tests.benchmarks [--quick] [--only NAME …]`: all comparisons, a table, JSON, a picture.

The result goes to `.bench/`; `--publish` also copies it to `docs/`, what failed as failed. Every row alternates between
the two sides in one run, and takes medians; compiling is done before on both sides.
"""

import argparse
import json
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.benchmarks import (
    rows_end_to_end,
    rows_full_graph,
    rows_gnn,
    rows_gnn_itself,
    rows_gnn_workers,
    rows_index,
    rows_records,
    rows_sampling,
    rows_subgraphs,
    rows_training,
    rows_vertex,
    rows_walks,
)
from tests.benchmarks.measure import ROOT
from tests.benchmarks.report import Report, Row, own_versions, peer_versions
from tests.benchmarks.setting import REQUIREMENTS, Setting
from tests.benchmarks.stages import warm_up

ROWS = {
    **rows_walks.ROWS, **rows_training.ROWS, **rows_index.ROWS, **rows_end_to_end.ROWS, **rows_sampling.ROWS,
    **rows_records.ROWS, **rows_subgraphs.ROWS, **rows_gnn.ROWS,
    **rows_gnn_itself.ROWS, **rows_gnn_workers.ROWS, **rows_full_graph.ROWS, **rows_vertex.ROWS,
}  # fmt: skip


def main() -> int:
    """Run; the exit status is 1 when a row failed, on either side. A target that is missed is no failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only", metavar="NAME", action="append", choices=list(ROWS), help="only these; repeatable")
    parser.add_argument("--quick", action="store_true", help="small graphs, to try the benchmark itself")
    parser.add_argument("--list", action="store_true", help="print the names for --only")
    parser.add_argument("--out", type=Path, help="where the JSON goes; default .bench/results.json")
    parser.add_argument("--publish", action="store_true", help="copy JSON and picture to docs/")
    options = parser.parse_args()
    if options.list:
        sys.stdout.write("\n".join(ROWS) + "\n")
        return 0
    setting = Setting(quick=options.quick)
    if options.publish and (options.quick or options.only):
        parser.error("--publish takes a full run")
    out = options.out or setting.folder / ("results-quick.json" if options.quick else "results.json")
    setting.set_up_peers()
    setting.say("warming up: the compiled kernels of every stage")
    warm_up(setting)
    report = Report(command=" ".join(["python -m tests.benchmarks", *sys.argv[1:]]))
    report.versions = {"ours": own_versions(), "peers": peer_versions(REQUIREMENTS.read_text())}
    return run_rows(setting, {name: ROWS[name] for name in options.only or ROWS}, report, out, options.publish)


def run_rows(
    setting: Setting,
    rows: Mapping[str, Callable[[Setting], list[Row]]],
    report: Report,
    out: Path,
    publish: bool = False,
    documents: Path = ROOT / "docs",
) -> int:
    """Fill the report, write it as JSON, table and picture, and publish it; the exit status.

    A row that failed is in all of them as failed: an older figure in its place would be taken for a present one.
    """
    begun = time.monotonic()
    out.parent.mkdir(parents=True, exist_ok=True)
    for number, (name, measure) in enumerate(rows.items(), 1):
        setting.say(f"{number}/{len(rows)} {name}")
        try:
            report.rows += measure(setting)
        except Exception as error:
            traceback.print_exc(file=setting.stream)
            report.rows.append(Row(name, "all peers", "", None, note=f"{type(error).__name__}: {error}"))
        report.seconds = time.monotonic() - begun
        out.write_text(json.dumps(report.document(), indent=1) + "\n")
    report.picture(out.with_suffix(".png"))
    out.with_suffix(".md").write_text(report.table() + "\n")
    sys.stdout.write(f"\n{report.date}, {report.machine}, `{report.command}`\n\n{report.table()}\n\n{out}\n")
    if publish:
        documents.mkdir(exist_ok=True)
        shutil.copyfile(out, documents / "benchmarks.json")
        shutil.copyfile(out.with_suffix(".png"), documents / "benchmarks.png")
    for failure in report.failures:
        setting.say(f"failed: {failure}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
