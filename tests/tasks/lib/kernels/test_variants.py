"""Variants: the fastest is chosen and kept, any can be forced, and cached kernels are those of the chosen one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numba as nb
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.kernels.prefetch import LEVEL, prefetch, prefetch_far, prefetch_row
from superworkflow.tasks.lib.kernels.variants import VARIABLE, KernelChoice, choices_of


def choice(folder: Path, **rates: float) -> KernelChoice:
    measured = {name: [rate, rate / 2, 2 * rate, rate, rate] for name, rate in rates.items()}
    return KernelChoice(
        "trial", "turns/s", lambda: {name: measured[name].pop for name in measured}, lambda: str(folder)
    )


def test_the_fastest_is_chosen_and_kept(tmp_path):
    assert choice(tmp_path, slow=1.0, fast=3.0).value == "fast"
    (kept,) = tmp_path.iterdir()
    assert json.loads(kept.read_text()) == {"slow": 2.0, "fast": 6.0}  # the best turn of each
    assert choice(tmp_path, slow=9.0, fast=1.0).value == "fast"  # as kept
    assert choice(tmp_path, slow=1.0, fast=2.0, other=4.0).value == "other"  # one more than was measured
    kept.write_text("{")
    assert choice(tmp_path, slow=9.0, fast=1.0).value == "slow"


def test_a_choice_that_cannot_be_kept_is_made_again(tmp_path):
    (tmp_path / "file").touch()
    assert choice(tmp_path / "file", slow=1.0, fast=3.0).value == "fast"
    assert choice(tmp_path / "none", only=0.0).value == "only"
    assert not (tmp_path / "none").exists()  # nothing to measure


def test_a_variant_is_forced(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "other=x, trial=slow")
    assert choice(tmp_path, slow=1.0, fast=3.0).value == "slow"
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv(VARIABLE, "trial=turbo")
    with pytest.raises(UserError, match=f"{VARIABLE}.*turbo.*slow or fast"):
        choice(tmp_path, slow=1.0, fast=3.0).value  # noqa: B018


def test_kernels_that_depend_on_a_choice_are_found():
    @nb.njit
    def inner(table, row):
        prefetch(table, row)

    @nb.njit
    def outer(table):
        inner(table, 0)

    @nb.njit
    def rows(table):
        prefetch_row(table, 0, 1)
        prefetch_far(table, 0)

    assert choices_of(outer.py_func) == [LEVEL]
    assert choices_of(rows.py_func) == []  # always into the second level


KERNEL = """
import sys
import numpy as np
from superworkflow.tasks.lib.gnn.distributed.kernels import rename
rename(np.arange(9, dtype=np.int32), np.arange(5))
print(sum(rename.stats.cache_hits.values()), len(list(rename.stats.cache_path and __import__("pathlib").Path(
    rename.stats.cache_path).glob("*rename*.nbc"))))
"""


def test_a_cached_kernel_of_another_variant_is_not_taken(tmp_path):
    def run(level: str) -> list[int]:
        environment = os.environ | {VARIABLE: f"prefetch={level}", "NUMBA_CACHE_DIR": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", KERNEL], env=environment, capture_output=True, text=True, check=True
        )
        return [int(word) for word in done.stdout.split()]

    assert run("first") == [0, 1]
    assert run("second") == [0, 2]
    assert run("first") == [1, 2]
