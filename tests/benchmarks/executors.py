"""`python -m tests.benchmarks.executors [--papers 14728]`: what executors share of a partitioned sample.

Stage `sample` on Spark, `spark_mode` partitioned, around papers of a fiftieth of OGBN-MAG's graph, with 1, 2 and 4
executors of one core: processes of their own on this machine, by Spark's `local-cluster`. They share its cores, so that
time says nothing. What counts is the CPU time that the executor with the most of it takes: of its tasks in Java, by
Spark's log of events, and of its Python processes, which count it themselves (`counted_daemon`).

Each executor has its start, which none can share: imports, kernels that are loaded, Java that is still interpreted. It
is part of all figures; what one executor takes for a hundred papers says about how much. Files are compared with those
of one process. Writes `.bench/executors.json` and `.md`.
"""

import argparse
import datetime
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.mag import PAPERS, mag_tables, write_seeds
from tests.benchmarks.measure import ROOT, Failed, run_command
from tests.benchmarks.report import machine, own_versions
from tests.benchmarks.setting import Setting
from tests.benchmarks.stages import MANIFEST, run_stage

SCALE = 0.02
MOST, FEW = round(PAPERS * SCALE), 100
"""Papers that there are, and those by which the start of an executor is measured."""
HEAP_MIB = 512
MEMORY = 2 << 30
"""Of an executor: what the stage plans with."""


@dataclass(frozen=True)
class Executor:
    """Work of one executor.

    Args:
        tasks: how many.
        java_s: CPU seconds of its tasks in Java, as Spark counts them.
        python_s: of its Python processes.
        whole_java_s: of its Java process, with all that is no task: start, compiling, collecting.
        shuffled: bytes that it wrote for others, or for itself, as Spark compresses them.
    """

    tasks: int
    java_s: float
    python_s: float
    whole_java_s: float
    shuffled: int

    @property
    def cpu_s(self) -> float:
        """All of its tasks."""
        return self.java_s + self.python_s


@dataclass(frozen=True)
class Run:
    """One sample."""

    executors: tuple[Executor, ...]
    edges: int

    @property
    def slowest_s(self) -> float:
        """CPU seconds of the one that took the most."""
        return max(each.cpu_s for each in self.executors)

    @property
    def sent(self) -> float:
        """Bytes an edge."""
        return sum(each.shuffled for each in self.executors) / self.edges


def read_run(events: Sequence[str], counted: Mapping[str, Sequence[str]], edges: int) -> Run:
    """Work of executors, from the lines of Spark's event log and from the files of Python's processes.

    Raises:
        Failed: a task did not end well, so that some of the work was done twice.
    """
    java: dict[str, dict[str, float]] = {}
    for event in map(json.loads, events):
        if event["Event"] != "SparkListenerTaskEnd":
            continue
        if event["Task End Reason"]["Reason"] != "Success":
            raise Failed(f"a task failed: {event['Task End Reason']}")
        totals = java.setdefault(event["Task Info"]["Executor ID"], {"tasks": 0, "ns": 0, "shuffled": 0})
        metrics = event["Task Metrics"]
        totals["tasks"] += 1
        totals["ns"] += metrics["Executor CPU Time"] + metrics["Executor Deserialize CPU Time"]
        totals["shuffled"] += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
    found = []
    for name, totals in sorted(java.items()):
        python = [json.loads(text) for text in counted[name]]
        used, whole = sum(each["cpu_s"] for each in python), max(each["java_s"] for each in python)
        found.append(Executor(int(totals["tasks"]), totals["ns"] / 1e9, used, whole, int(totals["shuffled"])))
    return Run(tuple(found), edges)


class Sample(NamedTuple):
    """Input files of a sampling run, and the expected result."""

    inputs: Mapping[str, Path]
    wanted: Any


def measure(setting: Setting, papers: int, counts: Sequence[int], rounds: int) -> tuple[float, dict[int, list[Run]]]:
    """CPU seconds of an executor's start, and runs by how many executors they had."""
    folder = setting.folder / "executors"
    tables = mag_tables(setting, SCALE)
    setting.say("the graph, and its subgraphs in one process")
    graph = run_stage(setting, "heterograph", {"graph": tables}, folder / "heterograph").output
    samples = []
    for count in (FEW, papers):
        inputs = {"graph": graph, "spec": tables / "spec.pbtxt"}
        if count < MOST:
            inputs["seeds"] = write_seeds(tables, count, folder / f"seeds-{count}.csv")
        made = run_stage(setting, "sample", inputs, folder / "here").output
        samples.append(Sample(inputs, _files(made)))
    few, all_ = samples
    setting.say("the start of an executor, after a run that compiles its kernels")
    start = [_run(setting, folder, few, 1).slowest_s for _ in range(2)][-1]
    found: dict[int, list[Run]] = {count: [] for count in counts}
    for _ in range(rounds):
        for count in counts:
            found[count].append(run := _run(setting, folder, all_, count))
            shares = ", ".join(f"{each.cpu_s:.1f}" for each in run.executors)
            setting.say(f"{count} executors: {shares} CPU s, of which {start:.1f} to start each")
    return start, found


def _files(output: Path) -> Any:
    return json.loads((output / MANIFEST).read_text())["files"]


def _run(setting: Setting, folder: Path, sample: Sample, count: int) -> Run:
    output, events, home = (folder / name for name in ("there", "events", "home"))
    for each in (output, events, home):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir(parents=True)
    _link_spark(home)
    resources = {"cpu": 1, "memory": 1 << 30, "executors": {"count": count, "cpu": 1, "memory": MEMORY}}
    command = [
        "env", f"SPARK_HOME={home}", "SPARK_LOCAL_IP=127.0.0.1",
        f"SUPERWORKFLOW_SPARK_CONF={json.dumps(_settings(count, events))}",
        sys.executable, "-m", "superworkflow", "stage", "sample", "--engine", "spark", "--output", str(output),
        "--params-json", json.dumps({"spark_mode": "partitioned"}), "--resources-json", json.dumps(resources),
    ]  # fmt: skip
    for name, path in sample.inputs.items():
        command += ["--input", f"{name}={path}"]
    run_command(command, 1, setting.folder / "logs" / f"executors-{count}.log")
    if _files(output) != sample.wanted:
        raise Failed(f"{count} executors made other files than one process")
    (log,) = events.glob("[!.]*")
    reports: dict[str, list[str]] = {}
    for path in home.glob("work/*/*/*.cpu"):
        reports.setdefault(path.parent.name, []).append(path.read_text())
    edges = int(json.loads((output / MANIFEST).read_text())["stats"]["edges"])
    run = read_run(log.read_text().splitlines(), reports, edges)
    if len(run.executors) != count:
        raise Failed(f"{len(run.executors)} executors had work, of {count}")
    return run


def _link_spark(home: Path) -> None:
    """Spark as pyspark has it, in a folder of its own: executors of a `local-cluster` work below it."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    for each in Path(spec.origin).parent.iterdir():
        if each.name != "work":
            (home / each.name).symlink_to(each)


def _settings(count: int, events: Path) -> dict[str, str]:
    return {
        "spark.master": f"local-cluster[{count},1,{HEAP_MIB}]",
        "spark.executor.cores": "1",
        "spark.executor.memory": f"{HEAP_MIB}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.default.parallelism": str(2 * count),
        "spark.sql.shuffle.partitions": str(2 * count),
        # None has work before all are there.
        "spark.scheduler.minRegisteredResourcesRatio": "1",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.resolve().as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.python.daemon.module": "tests.benchmarks.counted_daemon",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        **{f"spark.executorEnv.{name}": "1" for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")},
    }


def table(start_s: float, runs: Mapping[int, Sequence[Run]]) -> str:
    """Markdown: a line for each number of executors, least and most of its runs; ratios of the means."""
    lines = [
        "| executors | CPU s of the slowest | against one | bytes sent, an edge |",
        "| ---: | ---: | ---: | ---: |",
    ]
    for count, found in runs.items():
        one, some = ([run.slowest_s for run in runs[each]] for each in (min(runs), count))
        ratio = (sum(one) / len(one)) / (sum(some) / len(some))
        lines.append(f"| {count} | {_span(some)} | {ratio:.1f}× | {_span([run.sent for run in found])} |")
    return "\n".join([*lines, "", f"One executor takes {start_s:.1f} CPU seconds for {FEW} papers."])


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.executors", description=__doc__)
    parser.add_argument("--papers", type=int, default=MOST, help=f"seeds; all {MOST} by default")
    parser.add_argument("--executors", type=int, nargs="+", default=[1, 2, 4], help="how many; 1 2 4 by default")
    parser.add_argument("--rounds", type=int, default=2, help="times that each number is run; default 2")
    options = parser.parse_args()
    setting = Setting(threads=1)
    start_s, runs = measure(setting, options.papers, options.executors, options.rounds)
    document = {
        "papers": options.papers, "start_s": start_s,
        "runs": {count: [asdict(run) for run in found] for count, found in runs.items()},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "machine": machine(),
        "versions": own_versions(),
    }  # fmt: skip
    out = setting.folder / "executors.json"
    out.write_text(json.dumps(document, indent=1) + "\n")
    out.with_suffix(".md").write_text(table(start_s, runs) + "\n")
    sys.stdout.write(f"\n{table(start_s, runs)}\n\n{out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
