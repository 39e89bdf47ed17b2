"""Graphs of tests of worker groups, with their means and their parts."""

from pathlib import Path
from typing import Any

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import aggregate, holdout_links, partition, shard
from tests.tasks.gnn_graphs import one_kind
from tests.tasks.index_helpers import run_stage


class Made:
    """A graph, its means, and its shards."""

    def __init__(self, folder: Path, make: Any, **given: Any):
        self.graph = make(folder / f"graph-{folder.name}", **given)
        inputs = {"graph": self.graph.uri}
        self.sums = run_stage(aggregate.STAGE, {}, inputs, folder / "sums")
        parts = run_stage(partition.STAGE, {"parts": 4}, inputs, folder / "parts")
        self.shards = run_stage(shard.STAGE, {}, inputs | {"partition": parts.uri}, folder / "shards")

    def inputs(self, **more: Dataset) -> dict[str, str]:
        return {"graph": self.graph.uri} | {name: each.uri for name, each in more.items()}


def linked(folder: Path, base: Any = one_kind, **params: Any) -> Dataset:
    """A graph of which links were held out."""
    whole = base(folder.with_name(f"{folder.name}-whole"))
    given = {"graph": whole.uri}
    return run_stage(holdout_links.STAGE, {"test_share": 0.2, "validation_share": 0.1, **params}, given, folder)
