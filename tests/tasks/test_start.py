"""Imports of a stage's process: libraries that it does not use take longer than a small stage."""

import json
import subprocess
import sys

import numba
import numpy as np
import pytest

from superworkflow.images.import_stages import import_all
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.kernels.numba_cache import TESTED_VERSION, load_kernels_fast

UNUSED = ("pandas", "scipy.linalg", "fsspec", "numba.typed.typedlist", "pyspark")
_RUN = f"""
import sys
from superworkflow.__main__ import main
status = main(sys.argv[1:])
print([name for name in {UNUSED} if name in sys.modules], file=sys.stderr)
sys.exit(status)
"""


def _stage(tmp_path, name: str, inputs: dict, params: dict) -> str:
    """Run the command twice, since the first run may compile; what the second loaded of UNUSED."""
    for turn in range(2):
        command = [sys.executable, "-c", _RUN, "stage", name, "--output", str(tmp_path / f"{name}-{turn}")]
        command += ["--params-json", json.dumps(params), "--threads", "2"]
        command += [part for key, path in inputs.items() for part in ("--input", f"{key}={path}")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_stages_load_only_what_they_use(tmp_path):
    edges = tmp_path / "edges.csv"
    edges.write_text("source,target\n" + "".join(f"{i},{(i * 7 + k) % 50}\n" for i in range(50) for k in (1, 2)))
    assert _stage(tmp_path, "index", {"edges": edges}, {"engine": "compiled"}) == "[]"
    graph = {"graph": tmp_path / "index-1"}
    assert _stage(tmp_path, "walk", graph, {"num_walks": 1, "walk_length": 5}) == "[]"
    walks = graph | {"walks": tmp_path / "walk-1"}
    assert _stage(tmp_path, "prepare", walks, {}) == "[]"
    given = walks | {"vocabulary": tmp_path / "prepare-1"}
    assert _stage(tmp_path, "embed", given, {"dimensions": 8}) == "[]"


def test_a_kernel_that_is_not_cached_is_compiled(tmp_path):
    load_kernels_fast()

    @numba.njit(cache=True)
    def total(values, matrix):
        return values.sum() + (matrix @ matrix)[0, 0]

    assert total(np.arange(4.0), np.eye(2) * 3) == 6 + 9


STALE = """
import sys
sys.path.insert(0, sys.argv[1])
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
load_kernels_fast()
import numpy as np, kernel, rows
print(kernel.total(rows.{name}(np.arange(4))), sum(kernel.total.stats.cache_hits.values()))
"""


@pytest.mark.slow
def test_a_cache_that_names_a_renamed_type_is_made_anew(tmp_path):
    """As after an upgrade that leaves the caches of the version before in the package's folders."""
    text = "from typing import Any, NamedTuple\n\nclass {name}(NamedTuple):\n    values: Any\n"
    (tmp_path / "kernel.py").write_text(
        "import numba\n\n@numba.njit(cache=True)\ndef total(rows):\n    return rows.values.sum()\n"
    )

    def run(name: str) -> str:
        (tmp_path / "rows.py").write_text(text.format(name=name))
        command = [sys.executable, "-B", "-c", STALE.format(name=name), str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert [run("Rows"), run("Rows")] == ["6 0\n", "6 1\n"]
    assert [run("CsrRows"), run("CsrRows")] == ["6 0\n", "6 1\n"]


def test_numba_is_one_whose_private_functions_were_compared():
    """After an upgrade: compare `Cache.load_overload` and `_rebuild_env` with Numba's, then raise `TESTED_VERSION`."""
    assert numba.version_info.short <= TESTED_VERSION


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.uint8])
def test_column_shares_the_values_of_an_array(dtype):
    values = np.arange(12, dtype=dtype)
    shared = column(values)
    assert shared.to_pylist() == values.tolist()
    values[0] = 7
    assert shared[0].as_py() == 7
    assert column(values[::3]).to_pylist() == values[::3].tolist()


def test_images_compile_kernels_without_torch_and_spark():
    program = "import sys; sys.modules.update(torch=None, pyspark=None); import superworkflow.images.compile_kernels"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_images_import_what_their_stages_do():
    assert "walk" in import_all("in-process")
    assert set(import_all("spark")) == {"heterograph", "index", "prepare", "records", "sample", "walk"}
    command = [sys.executable, "-m", "superworkflow.images.import_stages", "abacus"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "no stage could be imported" in done.stderr
