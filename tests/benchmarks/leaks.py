"""Runs in a row, and what they leave behind: `python -m tests.benchmarks.leaks [ROUNDS]`, by default fifty.

One process runs a small superworkflow again and again: once with a parameter that no run had before, for which its fork
server starts one stage, and once with every stage cached. A dashboard in a process of its own shows four pages after
each round. Prints memory, descriptors, threads and children of the three after a fifth of the rounds and at the end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import psutil

import superworkflow as sw
from superworkflow.infra.launch.local import fork_client

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


def main() -> None:
    """Run, and print a table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    os.environ["MLFLOW_TRACKING_URI"] = os.environ["PREFECT_API_URL"] = ""
    with tempfile.TemporaryDirectory() as folder:
        store, code, edges = Path(folder, "store"), Path(folder, "hubs.py"), Path(folder, "edges.csv")
        code.write_text(CODE)
        edges.write_text("".join(f"a{n},a{n * 7 % 100}\n" for n in range(100)))
        sw.run(str(code), edges=str(edges), store=str(store))
        dashboard = subprocess.Popen(
            [sys.executable, "-m", "superworkflow", "dashboard", "--store", str(store), "--port", "0"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert dashboard.stdout is not None
            address, server = dashboard.stdout.readline().strip(), fork_client.shared()
            assert server is not None
            watched = {"runs": os.getpid(), "fork server": server.pid, "dashboard": dashboard.pid}
            for number in range(1, rounds + 1):
                for _ in range(2):
                    made = sw.run(str(code), edges=str(edges), store=str(store), params={"degrees.minimum": number + 1})
                assert all(stage.state == "cached" for stage in made.record.stages)
                for page in PAGES:
                    httpx.get(address + page.format(made.record.run_id), timeout=60).raise_for_status()
                if number in (max(1, rounds // 5), rounds):
                    for name, pid in watched.items():
                        print(f"{number:>4} {name:<12} {_state(psutil.Process(pid))}", flush=True)  # noqa: T201
        finally:
            dashboard.send_signal(signal.SIGINT)
            dashboard.wait(60)


def _state(process: psutil.Process) -> str:
    memory = process.memory_info().rss / MIB
    children = len(process.children())
    return f"{memory:7.1f} MiB {process.num_fds():>4} fds {process.num_threads():>3} threads {children:>3} children"


if __name__ == "__main__":
    main()
