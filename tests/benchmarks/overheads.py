"""Costs of a run, a stage and a trial beyond their work: `python -m tests.benchmarks.overheads [ROUNDS]`, or 3 rounds.

Runs of stages that do nothing, one of them or nine in a chain, and grids of two trials or ten, each in a new store, on
this machine, without servers. CPU time is that of the command and all that it starts. Prints the median of the rounds.
"""

import itertools
import json
import os
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.measure import Measured, alternate, median, run_command

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
    os.environ["MLFLOW_TRACKING_URI"] = os.environ["PREFECT_API_URL"] = ""
    with tempfile.TemporaryDirectory() as made:
        folder, stores = Path(made), itertools.count()
        (text := folder / "text.txt").write_text("a line\n")
        for stages in (1, 9):
            (folder / f"chain_{stages}.py").write_text(CODE.replace("STAGES", str(stages)))
        for trials in (2, 10):
            (folder / f"{trials}.json").write_text(json.dumps({"first": {"value": list(range(trials))}}))

        def measured(verb: str, stages: int, *more: str) -> Measured:
            given = [str(folder / f"chain_{stages}.py"), "--text", str(text), "--store", f"{folder}/{next(stores)}"]
            command = [sys.executable, "-m", "superworkflow", verb, *given, *more]
            return run_command(command, os.cpu_count() or 1, folder / "log")

        def sweep(trials: int) -> Measured:
            space = str(folder / f"{trials}.json")
            return measured("sweep", 1, "--space", space, "--sampler", "grid", "--objective", "first.value")

        found = alternate(
            {
                "run of 1": lambda: measured("run", 1), "run of 9": lambda: measured("run", 9),
                "sweep of 2": lambda: sweep(2), "sweep of 10": lambda: sweep(10),
            },
            rounds,
        )  # fmt: skip
    cpu = {name: median([each.cpu_s for each in rows]) for name, rows in found.items()}
    wall = {name: median([each.wall_s for each in rows]) for name, rows in found.items()}
    for name, few, more in (("stage", "run of 1", "run of 9"), ("trial", "sweep of 2", "sweep of 10")):
        each = [(of_all[more] - of_all[few]) / 8 for of_all in (cpu, wall)]
        print(f"{few}: {cpu[few]:.2f} CPU s, {wall[few]:.2f} s; {more}: {cpu[more]:.2f} CPU s, {wall[more]:.2f} s; "  # noqa: T201
              f"a {name}: {each[0]:.2f} CPU s, {each[1]:.2f} s")  # fmt: skip


if __name__ == "__main__":
    main()
