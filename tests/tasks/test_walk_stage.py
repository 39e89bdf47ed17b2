"""The walk stage as a process runs it: shards, stats, start vertices by label, errors, and its estimate."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.params import parse_params
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.infra.storage.manifest import warnings_of
from superworkflow.tasks.walk import STAGE, estimates
from superworkflow.tasks.walk.estimates import estimate, shard_walks
from superworkflow.tasks.walk.params import WalkParams
from superworkflow.tasks.walk.walker import Walker
from tests.datasets import commit


def write_graph(folder: Path, n: int, edges: int, *, directed: bool = False, weighted: bool = False) -> Dataset:
    """An index dataset of a random graph whose vertex i has the label `v<i>`."""
    rng = np.random.default_rng(n)
    a, b = rng.integers(0, n, edges), rng.integers(0, n, edges)
    keys = np.unique(a[a != b] * n + b[a != b])
    if not directed:
        keys = keys[keys // n < keys % n]
        keys = np.sort(np.concatenate([keys, keys % n * n + keys // n]))
    indptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(keys // n, minlength=n), out=indptr[1:])
    sources, targets = keys // n, keys % n
    writer = DatasetWriter(folder)
    writer.array("indptr.npy", indptr)
    writer.array("indices.npy", targets.astype(np.int32))
    if weighted:
        writer.array("weights.npy", ((sources + targets) % 7 + 1).astype(np.float32))
    writer.table("vertices.parquet", pa.table({"node": [f"v{i}" for i in range(n)], "degree": np.diff(indptr)}))
    stats = {"vertices": n, "directed_edges": len(keys), "directed": directed, "weighted": weighted}
    return commit(writer, "index", {"n": n, "keys": len(keys)}, stats, len(keys))


def make(graph: Dataset, output: Path, params: dict[str, object], cpu: int = 2) -> Dataset:
    resources = Resources(cpu=cpu)
    return execute(STAGE, params, {"graph": graph.uri}, str(output), resources, Progress("walk")).dataset


def all_walks(dataset: Dataset) -> np.ndarray:
    return np.concatenate([dataset.array(name) for name in dataset.files("walks-*.npy")])


@pytest.mark.parametrize(("p", "q"), [(1, 1), (0.5, 2)])
def test_shards_stats_and_bounded_size(tmp_path, monkeypatch, p, q):
    monkeypatch.setattr(estimates, "SHARD_BYTES", 4 * 20 * 2048 * 2)
    graph = write_graph(tmp_path / "graph", 3000, 20_000)
    made = make(graph, tmp_path / "walks", {"num_walks": 7, "walk_length": 20, "p": p, "q": q})
    assert made.files() == [f"walks-{i:05d}.npy" for i in range(6)]
    shards = [made.array(name) for name in made.files()]
    assert [len(shard) for shard in shards] == [4096] * 5 + [21_000 - 5 * 4096]
    assert all(shard.dtype == np.int32 and shard.shape[1] == 20 for shard in shards)
    walks = np.concatenate(shards)
    indptr, indices = graph.array("indptr.npy"), graph.array("indices.npy")
    expected = Walker(np.array(indptr), np.array(indices), walk_length=20, p=p, q=q, seed=42).walk(0, 21_000)
    np.testing.assert_array_equal(walks, expected)
    tokens = int((walks >= 0).sum())
    assert made.manifest.rows == made.stats["walks"] == 21_000
    assert made.stats["tokens"] == tokens
    assert made.stats["steps"] == tokens - 21_000
    assert made.stats["walks_ended_by_sink"] == int((walks[:, -1] < 0).sum())
    assert made.stats["shards"] == 6
    again = make(graph, tmp_path / "again", {"num_walks": 7, "walk_length": 20, "p": p, "q": q}, cpu=1)
    assert [file.sha256 for file in again.manifest.files] == [file.sha256 for file in made.manifest.files]


def test_walks_that_end_in_sinks_are_counted(tmp_path):
    graph = write_graph(tmp_path / "graph", 400, 700, directed=True)
    made = make(graph, tmp_path / "walks", {"num_walks": 3, "walk_length": 10})
    walks = all_walks(made)
    assert 0 < made.stats["walks_ended_by_sink"] == (walks[:, -1] < 0).sum() < 1200
    assert made.stats["tokens"] == (walks >= 0).sum()
    (warning,) = warnings_of(made.stats)
    share = made.stats["walks_ended_by_sink"] / made.stats["walks"]
    assert f"{share:.0%} of the walks end early" in warning
    assert "--directed" in warning


def test_a_graph_without_sinks_gives_no_warning(tmp_path):
    graph = write_graph(tmp_path / "graph", 50, 900)
    made = make(graph, tmp_path / "walks", {"num_walks": 3, "walk_length": 10})
    assert (made.stats["walks_ended_by_sink"], warnings_of(made.stats)) == (0, ())


def test_shard_boundaries_depend_on_walk_length_only():
    assert shard_walks(80) * 80 * 4 <= 32 << 20 < (shard_walks(80) + 2048) * 80 * 4
    assert shard_walks(1_000_000) == 8


def test_start_vertices_by_label(tmp_path):
    graph = write_graph(tmp_path / "graph", 100, 900)
    made = make(graph, tmp_path / "walks", {"num_walks": 4, "walk_length": 6, "start_vertices": ["v9", "v90", "v3"]})
    walks = all_walks(made)
    assert made.stats["start_vertices"] == 3
    np.testing.assert_array_equal(np.sort(walks[:, 0].reshape(4, 3), 1), [[3, 9, 90]] * 4)
    with pytest.raises(UserError, match=r"walk\.start_vertices: 2 of 3 .*'nobody'"):
        make(graph, tmp_path / "none", {"start_vertices": ["v1", "nobody", "v100"]})
    assert Dataset.find(tmp_path / "none") is None


def test_weights_are_used_unless_switched_off(tmp_path):
    weighted = write_graph(tmp_path / "weighted", 100, 900, weighted=True)
    plain = write_graph(tmp_path / "plain", 100, 900)
    params = {"num_walks": 2, "walk_length": 9}
    by_default = make(weighted, tmp_path / "default", params)
    requested = make(weighted, tmp_path / "requested", {**params, "weighted": True})
    ignored = make(weighted, tmp_path / "ignored", {**params, "weighted": False})
    np.testing.assert_array_equal(all_walks(by_default), all_walks(requested))
    np.testing.assert_array_equal(all_walks(ignored), all_walks(make(plain, tmp_path / "same", params)))
    assert (all_walks(requested) != all_walks(ignored)).any()
    assert (by_default.stats["weighted"], ignored.stats["weighted"]) == (True, False)
    with pytest.raises(UserError, match="the graph has no weights"):
        make(plain, tmp_path / "none", {"weighted": True})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("p", 0), ("p", -1), ("q", 0), ("q", float("nan")), ("num_walks", 0), ("walk_length", 0), ("seed", -1),
        ("start_vertices", []), ("walk_lenght", 3),
    ],
)  # fmt: skip
def test_bad_parameters_name_their_path(name, value):
    with pytest.raises(UserError, match=rf"^walk\.{name}"):
        parse_params(WalkParams, {name: value}, "walk")


def test_numbers_are_labels_too():
    assert WalkParams(start_vertices=[3, "x"]).start_vertices == ("3", "x")


def test_search_ranges_contain_the_defaults():
    searched = {}
    for name, field in WalkParams.model_fields.items():
        if "search" in (field.json_schema_extra or {}):
            search = searched[name] = field.json_schema_extra["search"]
            inside = field.default in search["choices"] if "choices" in search else True
            assert inside if "choices" in search else search["low"] <= field.default <= search["high"]
    assert set(searched) == {"num_walks", "walk_length", "p", "q"}


_MEASURE = """
import json, sys
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.contract.resources import Resources
from superworkflow.tasks.walk import STAGE
graph, output, params = sys.argv[1:]
made = execute(STAGE, json.loads(params), {"graph": graph}, output, Resources(cpu=2), Progress("walk"))
print(made.manifest.measured.peak_memory_bytes, made.manifest.bytes)
"""


@pytest.mark.parametrize(
    ("n", "edges", "weighted", "params"),
    [
        (10_000, 100_000, False, {"num_walks": 2}),
        pytest.param(200_000, 2_000_000, False, {"num_walks": 2, "p": 0.5, "q": 2}, marks=pytest.mark.slow),
        (300_000, 3_000_000, True, {"num_walks": 1, "p": 0.5, "q": 2}),
        pytest.param(500_000, 4_000_000, False, {"num_walks": 1, "walk_length": 40}, marks=pytest.mark.slow),
    ],
)
def test_estimate_of_memory_and_size(tmp_path, n, edges, weighted, params):
    small = write_graph(tmp_path / "small", 1000, 10_000, weighted=weighted)
    arguments = [small.uri, str(tmp_path / "compiled"), json.dumps(params)]
    subprocess.run([sys.executable, "-c", _MEASURE, *arguments], check=True, capture_output=True)
    graph = write_graph(tmp_path / "graph", n, edges, weighted=weighted)
    arguments[:2] = graph.uri, str(tmp_path / "walks")
    done = subprocess.run([sys.executable, "-c", _MEASURE, *arguments], check=True, capture_output=True, text=True)
    peak, size = map(int, done.stdout.split())
    predicted = estimate(WalkParams(**params), {"graph": graph.stats}, Resources(cpu=2))
    assert predicted.memory_bytes == pytest.approx(peak, rel=0.2)
    assert predicted.output_bytes == pytest.approx(size, rel=0.01)
    assert predicted.cpu_s > 0


KILLED = """
import os, signal, sys, time
from pathlib import Path
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.manifest import WHOLE_FOLDER
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.contract.resources import Resources
from superworkflow.tasks import walk
from superworkflow.tasks.walk import estimates

class Deadly(Progress):
    def update(self, done, total, unit, **figures):
        if done == 3 * 4096:
            while not (Path(sys.argv[2]) / WHOLE_FOLDER / "walks-00001.npy.json").exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)

estimates.SHARD_BYTES = 4 * 20 * 2048 * 2
params = {"num_walks": 7, "walk_length": 20}
execute(walk.STAGE, params, {"graph": sys.argv[1]}, sys.argv[2], Resources(cpu=2), Deadly("walk"))
"""


def test_shards_that_were_whole_are_not_made_again(tmp_path, monkeypatch, capsys):
    """SIGKILL in the middle, and one of the shards that were complete is damaged before the next attempt."""
    monkeypatch.setattr(estimates, "SHARD_BYTES", 4 * 20 * 2048 * 2)
    graph = write_graph(tmp_path / "graph", 3000, 20_000, directed=True)
    expected = make(graph, tmp_path / "expected", {"num_walks": 7, "walk_length": 20})
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, graph.uri, str(tmp_path / "walks")], timeout=300, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    first, second = (tmp_path / "walks" / f"walks-0000{i}.npy" for i in (0, 1))
    damaged = bytearray(second.read_bytes())
    damaged[-1] ^= 1
    second.write_bytes(damaged)
    before = first.stat().st_mtime_ns
    made = make(graph, tmp_path / "walks", {"num_walks": 7, "walk_length": 20})
    assert first.stat().st_mtime_ns == before
    assert re.search(r"[12] of 6 shards are from an earlier attempt", capsys.readouterr().err)
    assert made.manifest.files == expected.manifest.files
    assert made.stats == expected.stats
