"""Compiling kernels: counted once, said once, apart from the stage's own work."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from superworkflow.infra.process.compile_clock import CompileClock


def _busy() -> None:
    sum(range(200_000))


def test_what_is_nested_counts_once() -> None:
    clock, begun = CompileClock(), []
    clock.reset(lambda: begun.append(1))
    clock.begin()
    _busy()
    assert clock.seconds == (0, 0)
    for _ in range(3):
        clock.begin()
        _busy()
        clock.end()
        assert clock.seconds == (0, 0)  # within the first one
    clock.end()
    wall, cpu = clock.seconds
    assert 0 < cpu <= wall * 1.01 + 1e-4
    clock.begin()
    clock.end()
    assert clock.seconds >= (wall, cpu)
    assert begun == [1]
    clock.reset()
    assert clock.seconds == (0, 0)


def test_each_thread_has_its_own_nesting() -> None:
    clock = CompileClock()
    clock.begin()
    inner = threading.Thread(target=lambda: (clock.begin(), _busy(), clock.end()))
    inner.start()
    inner.join()
    first = clock.seconds
    assert first[0] > 0
    clock.end()
    assert clock.seconds[0] > first[0]


@pytest.mark.slow
def test_a_first_run_says_it_and_keeps_it_apart(tmp_path: Path) -> None:
    """From an empty cache, and again: the second run compiles nothing, and says nothing."""
    edges = tmp_path / "edges.csv"
    edges.write_text("source,target\n" + "".join(f"{i},{(i * 7 + 1) % 50}\n" for i in range(50)))
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    measured, said = [], []
    for turn in ("first", "second"):
        command = [sys.executable, "-P", "-m", "superworkflow", "stage", "index", "--input", f"edges={edges}"]
        done = subprocess.run(
            [*command, "--output", str(tmp_path / turn)], env=environment, capture_output=True, text=True, check=True
        )
        measured.append(json.loads(done.stdout))
        said.append(done.stderr.count("compiling kernels"))
    assert said == [1, 0]
    assert measured[0]["compile_s"] > 0
    assert measured[0]["compile_cpu_s"] > 0
    assert (measured[1]["compile_s"], measured[1]["compile_cpu_s"]) == (0, 0)
