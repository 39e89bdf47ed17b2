"""Runs in a row, and what they leave behind: `python -m tests.benchmarks.leaks [--rounds N] [--worker]`.

One process runs a small superworkflow again and again: once with a parameter that no run had before, for which its fork
server starts one stage, and once with every stage cached. A dashboard in a process of its own shows four pages after
each round. With `--worker` a Prefect server and a worker of a deployment instead, whose runs are started by the server.
Prints memory, descriptors, threads and children of each process after a fifth of the rounds and at the end; of the
process of the runs and of the worker also the memory that is left when the C library has given back what was freed.
"""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

import superworkflow as sw
from superworkflow.infra.launch.local import fork_client
from tests.flows.deployments import start_run, wait_for_state
from tests.prefect_server import prefect_server

CODE = '''
"""The degrees of a graph."""
from superworkflow import Diagram, Input, Output, Source, Stage, StageParams, StageRun, Superworkflow
from superworkflow.tasks import index


class Params(StageParams):
    minimum: int = 1


def degrees(job: StageRun[Params]) -> Output:
    job.output.array("degrees.npy", job.inputs["graph"].array("indptr.npy")[job.params.minimum :])
    return Output(rows=1)


DEGREES = Stage(name="degrees", run=degrees, inputs={"graph": Input("a graph")}, params=Params)


def diagram(flow: Diagram, edges: Source) -> None:
    flow.stage(DEGREES, graph=flow.stage(index.STAGE, edges=edges))


SUPERWORKFLOW = Superworkflow(
    name="hubs", help="degrees", stages=(index.STAGE, DEGREES), sources={"edges": "an edge list"}, diagram=diagram
)
'''
PAGES = ("/", "/compare", "/models", "/run/{}")
MIB = 1 << 20
WORKER = """
import ctypes, signal
from superworkflow.worker import main
signal.signal(signal.SIGUSR2, lambda *_: ctypes.CDLL(None).malloc_trim(0))
main()
"""
"""A worker that gives memory back at a signal."""


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.leaks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="of two runs each; with --worker of one; default 50")
    parser.add_argument("--worker", action="store_true", help="a deployment's worker")
    options = parser.parse_args()
    os.environ["MLFLOW_TRACKING_URI"] = os.environ["PREFECT_API_URL"] = ""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        code, edges = folder / "hubs.py", folder / "edges.csv"
        code.write_text(CODE)
        edges.write_text("".join(f"a{n},a{n * 7 % 100}\n" for n in range(100)))
        pipeline = Pipeline(str(code), str(edges), str(folder / "store"))
        (_of_worker if options.worker else _of_runs)(pipeline, options.rounds, folder)


@dataclass(frozen=True)
class Pipeline:
    """Arguments of its runs."""

    code: str
    edges: str
    store: str

    def run(self, minimum: int) -> sw.Run:
        params = {"degrees.minimum": minimum}
        return sw.run(self.code, edges=self.edges, store=self.store, params=params)


def _of_runs(pipeline: Pipeline, rounds: int, folder: Path) -> None:
    pipeline.run(1)
    dashboard = subprocess.Popen(
        [sys.executable, "-m", "superworkflow", "dashboard", "--store", pipeline.store, "--port", "0"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert dashboard.stdout is not None
        address, server = dashboard.stdout.readline().strip(), fork_client.shared()
        assert server is not None
        watched = {"runs": os.getpid(), "fork server": server.pid, "dashboard": dashboard.pid}
        for number in range(1, rounds + 1):
            for _ in range(2):
                made = pipeline.run(number + 1)
            assert all(stage.state == "cached" for stage in made.record.stages)
            for page in PAGES:
                httpx.get(address + page.format(made.record.run_id), timeout=60).raise_for_status()
            _print(watched, number, rounds)
            if _is_shown(number, rounds):
                ctypes.CDLL(None).malloc_trim(0)
                _print({"trimmed": os.getpid()}, number, rounds)
    finally:
        dashboard.send_signal(signal.SIGINT)
        dashboard.wait(60)


def _of_worker(pipeline: Pipeline, rounds: int, folder: Path) -> None:
    homes = [folder / each for each in ("server", "worker")]
    for each in homes:
        each.mkdir()
    with prefect_server("127.0.0.1", homes[0]) as api:
        os.environ["PREFECT_API_URL"] = api
        made = sw.deploy(pipeline.code, "nightly", edges=pipeline.edges, store=pipeline.store, pool="leaks")
        with (folder / "log").open("w") as log:
            worker = subprocess.Popen(
                [sys.executable, "-c", WORKER, "leaks"], stdout=log, stderr=log,
                env=os.environ | {"PREFECT_HOME": str(homes[1])},
            )  # fmt: skip
        try:
            for number in range(1, rounds + 1):
                run = start_run(api, str(made.id), {"degrees": {"minimum": number + 1}})
                wait_for_state(api, run, "Completed")
                _print({"worker": worker.pid}, number, rounds)
                if _is_shown(number, rounds):
                    worker.send_signal(signal.SIGUSR2)
                    time.sleep(5)
                    _print({"trimmed": worker.pid}, number, rounds)
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)


def _print(watched: dict[str, int], number: int, rounds: int) -> None:
    if _is_shown(number, rounds):
        for name, pid in watched.items():
            print(f"{number:>4} {name:<12} {_state(psutil.Process(pid))}", flush=True)  # noqa: T201


def _is_shown(number: int, rounds: int) -> bool:
    return number in (max(1, rounds // 5), rounds)


def _state(process: psutil.Process) -> str:
    memory = process.memory_info().rss / MIB
    children = len(process.children())
    return f"{memory:7.1f} MiB {process.num_fds():>4} fds {process.num_threads():>3} threads {children:>3} children"


if __name__ == "__main__":
    main()
