"""Kernels that an image brings along."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from superworkflow.infra.process.kernel_cache import BROUGHT_VARIABLE, bring_kernels

COMPILE = """
import numba as nb, sys
from superworkflow.infra.process.kernel_cache import bring_kernels
bring_kernels()
sys.path.insert(0, sys.argv[1])
import kernel
kernel.twice(21)
print(sum(kernel.twice.stats.cache_hits.values()))
"""
KERNEL = "import numba as nb\n@nb.njit(cache=True)\ndef twice(x):\n    return 2 * x\n"


def test_a_brought_kernel_is_not_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)
    built, kept = tmp_path / "built", tmp_path / "kept"

    def run(**environment: str) -> int:
        command = [sys.executable, "-c", COMPILE, str(tmp_path)]
        return int(subprocess.run(command, env=os.environ | environment, capture_output=True, check=True).stdout)

    assert run(NUMBA_CACHE_DIR=str(built)) == 0
    files = {path.name for path in built.rglob("*.nb?")}
    assert run(NUMBA_CACHE_DIR=str(kept), **{BROUGHT_VARIABLE: str(built)}) == 1
    assert {path.name for path in kept.rglob("*.nb?")} == files


def test_what_is_kept_already_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built, kept = tmp_path / "built", tmp_path / "kept"
    built.mkdir()
    (built / "old").write_text("")
    monkeypatch.setenv(BROUGHT_VARIABLE, str(built))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(kept))
    kept.mkdir()
    bring_kernels()
    assert list(kept.iterdir()) == []
    kept.rmdir()
    bring_kernels()
    assert [path.name for path in tmp_path.rglob("old")] == ["old", "old"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["built", "kept"]
