"""Costs of a run, a stage and a trial beyond their work: `python -m tests.benchmarks.overheads [ROUNDS]`, or 3 rounds.

Runs of stages that do nothing, one of them or nine in a chain, and grids of two trials or ten, each in a new store, on
this machine, without servers. CPU time is that of the command and all that it starts. Prints the median of the rounds.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CODE = '''
"""A chain of stages that do nothing."""
from superworkflow import Diagram, Input, Output, Source, Stage, StageParams, StageRun, Superworkflow


class Params(StageParams):
    value: int = 0


def pass_on(job: StageRun[Params]) -> Output:
    return Output(rows=1, metrics={"value": float(job.params.value)})


FIRST = Stage(
    name="first", run=pass_on, inputs={"text": Input("a file", file=True)}, params=Params, metrics=("value",)
)
LATER = Stage(name="later", run=pass_on, inputs={"before": Input("a dataset")}, params=Params, metrics=("value",))


def diagram(flow: Diagram, text: Source) -> None:
    node = flow.stage(FIRST, text=text)
    for number in range(1, STAGES):
        node = flow.stage(LATER, name=f"later-{number}", before=node)


SUPERWORKFLOW = Superworkflow(
    name="chain", help="nothing", stages=(FIRST, LATER), sources={"text": "a file"}, diagram=diagram
)
'''


def main() -> None:
    """Run in turn, and print a table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for stages in (1, 9):
                code = Path(folder, f"chain_{stages}.py")
                code.write_text(CODE.replace("STAGES", str(stages)))
                (text := Path(folder, "text.txt")).write_text(f"{number} {stages}\n")
                given = [str(code), "--text", str(text), "--store", f"{folder}/store-{number}-{stages}"]
                found.setdefault(f"run of {stages}", []).append(_measured("run", *given))
            for trials in (2, 10):
                (space := Path(folder, "space.json")).write_text(json.dumps({"first": {"value": list(range(trials))}}))
                given = [str(Path(folder, "chain_1.py")), "--text", str(text), "--space", str(space)]
                given += ["--sampler", "grid", "--objective", "first.value"]
                given += ["--store", f"{folder}/sweep-{number}-{trials}"]
                found.setdefault(f"sweep of {trials}", []).append(_measured("sweep", *given))
    cpu, wall = (
        {name: statistics.median(each[side] for each in rows) for name, rows in found.items()} for side in (0, 1)
    )
    for name, few, more, apart in (("stage", "run of 1", "run of 9", 8), ("trial", "sweep of 2", "sweep of 10", 8)):
        each = [(of_all[more] - of_all[few]) / apart for of_all in (cpu, wall)]
        print(f"{few}: {cpu[few]:.2f} CPU s, {wall[few]:.2f} s; {more}: {cpu[more]:.2f} CPU s, {wall[more]:.2f} s; "  # noqa: T201
              f"a {name}: {each[0]:.2f} CPU s, {each[1]:.2f} s")  # fmt: skip


def _measured(*arguments: str) -> tuple[float, float]:
    """CPU seconds and seconds of a command."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    environment = os.environ | {"MLFLOW_TRACKING_URI": "", "PREFECT_API_URL": ""}
    command = [sys.executable, "-m", "superworkflow", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, time.monotonic() - begin


if __name__ == "__main__":
    main()
