"""Edges by their times on a worker group: the losses of one process."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.engines.workers.group import Checkpoint
from superworkflow.infra.engines.workers.session import Role, local_group
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import holdout_links, infer, partition, shard
from superworkflow.tasks.infer.on_workers import infer as infer_together
from superworkflow.tasks.train import STAGE
from superworkflow.tasks.train.on_workers import train
from superworkflow.tasks.train.params import TrainParams
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage

PARAMS: dict[str, Any] = {"hidden": 16, "epochs": 2, "batch": 9, "fanouts": "2,3", "dropout": 0.2, "lookahead": 2}
KINDS: dict[str, dict[str, Any]] = {
    "latest": {"sampler": "latest"},
    "not after": {"seed_time": "time"},
    "latest, not after": {"seed_time": "time", "sampler": "latest", "fanouts": "2,all", "model": "gin"},
    "embeddings": {"seed_time": "time", "clip_norm": 0.05},
    "links": {"seed_time": "timestamp", "sampler": "latest", "negatives": 2, "batch": 20},
}


def made(folder: Path, features: bool = True) -> Dataset:
    """A random graph with times too large for float32, which round to few others."""
    rng, names = np.random.default_rng(3), [f"n{i:02}" for i in range(50)]
    pairs = [each for each in rng.integers(0, 50, (400, 2)).tolist() if each[0] != each[1]]
    rows = [(names[a], names[b]) for u, v in pairs for a, b in ((u, v), (v, u))]
    times = 1_700_000_000 + np.repeat(rng.integers(0, 60, len(pairs)), 2)
    given: dict[str, Any] = {
        "label": [f"k{i % 3}" for i in range(50)], "time": 1_700_000_000 + rng.integers(5, 60, 50),
        "split": [("train", "validation", "test")[i // 3 % 3] for i in range(50)],
    }  # fmt: skip
    if features:
        given["features"] = rng.normal(size=(50, 6)).astype(np.float32)
    edges = {"edge": Edges("node", "node", rows, {"timestamp": times})}
    return write_heterograph(folder, {"node": Nodes(names, given)}, edges)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Dataset, Dataset]]:
    """Graphs and their parts."""
    folder = tmp_path_factory.mktemp("graphs")
    found = {"plain": made(folder / "plain"), "bare": made(folder / "bare", features=False)}
    found["links"] = run_stage(holdout_links.STAGE, {"by": "time", "test_share": 0.2, "validation_share": 0.1},
                               {"graph": found["plain"].uri}, folder / "links")  # fmt: skip
    shards = {}
    for name, graph in found.items():
        parts = run_stage(partition.STAGE, {"parts": 4}, {"graph": graph.uri}, folder / f"parts-{name}")
        inputs = {"graph": graph.uri, "partition": parts.uri}
        shards[name] = run_stage(shard.STAGE, {}, inputs, folder / f"shards-{name}")
    return {name: (graph, shards[name]) for name, graph in found.items()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder, log = tmp_path_factory.mktemp("group"), io.StringIO()
    progress = Progress("train", stream=log)
    with local_group([Role("worker", 2)], Checkpoint(folder / "checkpoint"), progress, folder) as found:
        yield found.run


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_those_of_one_process(
    run: Callable[..., list[Any]], graphs: dict[str, tuple[Dataset, Dataset]], kind: str, tmp_path: Path
) -> None:
    graph, shards = graphs[{"embeddings": "bare", "links": "links"}.get(kind, "plain")]
    params = PARAMS | KINDS[kind]
    alone = run_stage(STAGE, params, {"graph": graph.uri}, tmp_path / "alone", 1)
    whole = TrainParams(**params).model_dump(mode="json")
    run(train, whole, graph.uri, shards.uri, "", str(tmp_path / "together"))
    losses = alone.table("losses.parquet", ["loss"])["loss"].to_pylist()
    assert pq.read_table(tmp_path / "together" / "losses.parquet")["loss"].to_pylist() == pytest.approx(
        losses, abs=1e-4
    )
    params = {"seed_time": "", **params, "sampler": "neighbor"} if kind == "latest" else params | {"seed_time": ""}
    other = run_stage(STAGE, params, {"graph": graph.uri}, tmp_path / "other", 1)
    assert other.table("losses.parquet", ["loss"])["loss"].to_pylist() != pytest.approx(losses, abs=1e-3)
    if "seed_time" not in KINDS[kind]:
        return
    inputs = {"graph": graph.uri, "network": alone.uri}
    wanted = run_stage(infer.STAGE, {}, inputs, tmp_path / "inferred", 1)
    (found, _) = run(
        infer_together, {}, graph.uri, alone.uri, shards.uri, alone.uri, str(tmp_path / "inferred together")
    )
    assert found["stats"] == wanted.stats
    table = pq.read_table(tmp_path / "inferred together" / "predictions.parquet")
    assert table["probability"].to_pylist() == pytest.approx(
        wanted.table("predictions.parquet")["probability"].to_pylist(), abs=1e-4
    )


def test_batch_norm_of_copies_is_refused(graphs: dict[str, tuple[Dataset, Dataset]], tmp_path: Path) -> None:
    graph, shards = graphs["plain"]
    resources = Resources.model_validate({"workers": {"count": 1, "cpu": 1, "memory": "1Gi"}})
    inputs, params = {"graph": graph.uri, "shards": shards.uri}, PARAMS | {"seed_time": "time", "norm": "batch"}
    with pytest.raises(UserError, match=r"train.norm: with batch norm"):
        execute(STAGE, params, inputs, str(tmp_path / "refused"), resources, Progress("train"), "workers")
