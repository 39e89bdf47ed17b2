"""Spinning of OpenMP's threads and the number of Numba's, as the libraries themselves report them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from superworkflow.infra.launch.local.fork_client import PROGRAM, ForkServer
from superworkflow.infra.process.threads import sleep_soon

MINE = """
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.estimate import Estimate
from superworkflow.infra.contract.stage import Input, Output, Stage


def adds(job):
    import torch

    job.output.json("sum.json", {"sum": float(torch.ones(1 << 20).sum())})
    return Output(rows=0)


ADDS = Stage(
    name="adds", version="1", params=StageParams, inputs={"table": Input("a table", file=True)},
    run=f"{__name__}:adds", help="A sum by several threads.",
    estimate=lambda params, inputs, resources: Estimate(
        memory_bytes=1 << 28, base_bytes=1 << 28, cpu_s=1.0, start_s=0.5, output_bytes=100),
)
SUPERWORKFLOW = Superworkflow(
    name="sums", help="sums", stages=(ADDS,), sources={"table": "a table"},
    diagram=lambda flow, table: flow.stage(ADDS, table=table),
)
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, {"1000"}), ({"GOMP_SPINCOUNT": "77"}, {"77"}), ({"OMP_WAIT_POLICY": "active"}, {"30000000000"})],
    ids=["a stage", "a number given", "a policy given"],
)
def test_threads_of_a_stage_sleep_soon(tmp_path: Path, given: dict[str, str], expected: set[str]) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    chosen = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    environment = {name: value for name, value in os.environ.items() if name not in chosen}
    environment |= {"OMP_DISPLAY_ENV": "verbose", **given}
    (tmp_path / "table.csv").write_text("a\n1\n")
    command = [sys.executable, "-m", "superworkflow", "stage", "adds", "--code", str(tmp_path / "mine.py"),
               "--input", f"table={tmp_path / 'table.csv'}", "--output", str(tmp_path / "out")]  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)) == expected


COUNTS = MINE.replace(
    """    import torch

    job.output.json("sum.json", {"sum": float(torch.ones(1 << 20).sum())})
""",
    """    from concurrent.futures import ThreadPoolExecutor

    import numba
    import numpy as np

    @numba.njit(parallel=True)
    def places(out):
        for i in numba.prange(len(out)):
            out[i] = numba.get_thread_id()

    def used():
        out = np.zeros(1000, np.int64)
        places(out)
        return [numba.config.NUMBA_NUM_THREADS, numba.get_num_threads(), len(np.unique(out))]

    with ThreadPoolExecutor(1) as pool:
        job.output.json("threads.json", [used(), pool.submit(used).result()])
""",
)


@pytest.mark.parametrize("preloaded", [False, True], ids=["a fresh process", "a fork that has Numba"])
@pytest.mark.parametrize(("given", "expected"), [({}, 1), ({"NUMBA_NUM_THREADS": "2"}, 2)], ids=["by cpu", "chosen"])
def test_a_stage_computes_with_as_many_threads_of_numba_as_it_has_cpu(
    tmp_path: Path, preloaded: bool, given: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of its own threads calls Numba, and however many cores it sees."""
    (tmp_path / "mine.py").write_text(COUNTS)
    (tmp_path / "table.csv").write_text("a\n1\n")
    arguments = ["stage", "adds", "--code", str(tmp_path / "mine.py"), "--input", f"table={tmp_path / 'table.csv'}",
                 "--output", str(tmp_path / "out"), "--resources-json", '{"cpu": 1, "memory": "1Gi"}']  # fmt: skip
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    if preloaded:
        server = ForkServer(["index"])
        child = server.start(arguments, os.environ)
        assert child is not None
        child.stdin.close()
        said, code = child.stdout.read(), child.wait()
        child.stdout.close()
        server.close()
    else:
        done = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True)
        said, code = done.stdout + done.stderr, done.returncode
    assert code == 0, said
    for config, threads, took_part in json.loads((tmp_path / "out" / "threads.json").read_text()):
        assert (config, threads) == (expected, expected)
        assert took_part <= expected


def test_threads_of_openblas_sleep_soon_unless_somebody_chose() -> None:
    unset, chosen = dict[str, str](), {"OPENBLAS_THREAD_TIMEOUT": "26"}
    sleep_soon(unset)
    sleep_soon(chosen)
    assert (unset["OPENBLAS_THREAD_TIMEOUT"], chosen["OPENBLAS_THREAD_TIMEOUT"]) == ("16", "26")
