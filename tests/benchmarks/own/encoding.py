"""Examples of sampled subgraphs, by our kernels and by the protobuf package, from the same blocks in memory.

python -m tests.benchmarks.own.encoding FOLDER
{"side": "own" | "protobuf", "subgraphs"} -> {"bytes", "wall_s", "cpu_s"}
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.subgraphs.blocks import SubgraphBlock
from superworkflow.tasks.records.features import FeatureSource
from superworkflow.tasks.records.run import open_source
from superworkflow.tasks.records.shards import SplitSubgraphs, write_records
from tests.benchmarks.peers.serving import Clock, serve
from tests.tasks.examples import example_class

made: dict[str, Any] = {}


class Held(SplitSubgraphs):
    """Subgraphs whose blocks stay in memory."""

    def read(self, group: Any, *options: Any) -> SubgraphBlock:
        blocks = made.setdefault("blocks", {})
        if group not in blocks:
            blocks[group] = super().read(group, *options)
        return blocks[group]


class Nowhere:
    """A sink that forgets what is put into it."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def room(self, size: int) -> memoryview:
        if len(self._memory) < size:
            self._memory = bytearray(size)
        return memoryview(self._memory)[:size]

    def filled(self) -> None:
        pass


def prepare() -> dict[str, Any]:
    folder = Path(sys.argv[1])
    graph, sampled = (Dataset.open(folder / name) for name in ("graph", "sample"))
    made.update(source=open_source(graph, sampled), subgraphs=Held(sampled, "train"))
    return {"subgraphs": len(made["subgraphs"])}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    total, source, subgraphs = request["subgraphs"], made["source"], made["subgraphs"]
    for _ in subgraphs.blocks(0, total):
        pass  # reads them
    with Clock() as clock:
        if request["side"] == "own":
            size = write_records(subgraphs, source, 0, total, Nowhere())
        else:
            size = sum(
                _by_protobuf(source, block, min(total, group.last) - group.first)
                for group, block in subgraphs.blocks(0, total)
            )
    return {"bytes": size, **clock.seconds()}


def _by_protobuf(source: FeatureSource, block: SubgraphBlock, total: int) -> int:
    graph, kind, size = source.graph, example_class(), 0
    ids = graph.ids(source.seed_sets[0]).take(block.seeds[:total]).to_pylist()
    for s in range(total):
        example = kind()
        feature = example.features.feature
        feature["context/sample_id"].bytes_list.value.append(block.sample_ids[s].as_py().encode())
        feature["context/seed_id"].bytes_list.value.append(ids[s].encode())
        for i, nodes in enumerate(graph.node_sets.values()):
            rows = block.nodes[i][block.node_starts[i][s] : block.node_starts[i][s + 1]]
            if len(rows):
                feature[f"nodes/{nodes.name}.#size"].int64_list.value.append(len(rows))
                for each in nodes.features:
                    values = np.asarray(source.values("nodes", nodes, each.name))[rows].reshape(-1)
                    made_of = feature[f"nodes/{nodes.name}.{each.name}"]
                    (made_of.float_list if each.dtype == "float" else made_of.int64_list).value.extend(values)
        for j, edges in enumerate(graph.edge_sets.values()):
            span = slice(block.edge_starts[j][s], block.edge_starts[j][s + 1])
            if span.stop > span.start:
                feature[f"edges/{edges.name}.#size"].int64_list.value.append(span.stop - span.start)
                feature[f"edges/{edges.name}.#source"].int64_list.value.extend(block.sources[j][span])
                feature[f"edges/{edges.name}.#target"].int64_list.value.extend(block.targets[j][span])
        size += len(example.SerializeToString(deterministic=True)) + 16
    return size


serve(answer, prepare)
