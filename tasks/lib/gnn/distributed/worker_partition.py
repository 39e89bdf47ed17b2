"""The parts of a graph that one worker of a group has."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import StageRun
from superworkflow.infra.engines.workers.session import roles_of
from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.distributed.kv_store import KVStore
from superworkflow.tasks.lib.distributed.partition_book import PartitionBook
from superworkflow.tasks.lib.distributed.shards import Shards
from superworkflow.tasks.lib.gnn.edge_features import joined_features
from superworkflow.tasks.lib.gnn.edge_weights import check_weights, weighted_sets
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.gnn.relations import Relation
from superworkflow.tasks.lib.gnn.sampler.time_draws import timed_sets
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.kernels.arrays import read_only


def shards_of(job: StageRun[Any]) -> Dataset:
    """Input `shards` of a stage on workers: the graph in parts.

    Raises:
        UserError: it is missing, belongs to another graph, or has fewer parts than there are workers.
    """
    graph, shards = job.inputs["graph"], job.inputs.get("shards")
    if shards is None:
        raise UserError("a worker group reads the graph in parts, and there is none", where="shards",
                        remedy="Set partitioned=true of gnn or gnn_predict, or give --input shards=URI")  # fmt: skip
    made_of = shards.manifest.inputs.get("graph")
    if made_of is not None and made_of.digest != graph.digest:
        raise UserError("these are parts of another graph", where=shards.uri, value=made_of.digest,
                        remedy="Give the graph that was divided")  # fmt: skip
    workers = sum(each.count for each in roles_of(job.resources.workers or {}) if each.most == 0)
    Shards(shards).bounds(max(1, workers))
    return shards


class WorkerPartition:
    """A worker's parts: a contiguous range of all.

    Args:
        worker: the worker.
        shards: the graph in parts.
    """

    def __init__(self, worker: Worker, shards: Shards):
        bounds, self.rank, self._shards = shards.bounds(worker.size), worker.rank, shards
        first, last = int(bounds[worker.rank]), int(bounds[worker.rank + 1])
        self._range = first, last
        self.piece = shards.piece(first, last)
        self.book = PartitionBook(
            shards.orders(), {name: shards.book[i, bounds] for i, name in enumerate(shards.node_sets)}
        )
        self.digest = shards.dataset.digest
        own = shards.book[:, first : last + 1] - shards.book[:, [first]]
        self.parts = {
            first + part: {name: (int(own[i, part]), int(own[i, part + 1])) for i, name in enumerate(shards.node_sets)}
            for part in range(last - first)
        }
        """Bounds of each part among this worker's rows of each node set."""
        self._targets = {j: each.target for j, each in enumerate(shards.edge_sets)}

    def with_halo(self, store: KVStore, node_set: str, table: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rows of this worker's nodes, followed by those of the halo: neighbours in other parts. Collective.

        Args:
            store: access to the rows.
            node_set: set of the rows.
            table: rows of this worker's nodes [nodes, width].
        """
        halo = store.pull(node_set, self.piece.halo_numbers[node_set].astype(np.int64), table)
        return np.concatenate([table, halo])

    def places(self, edge_set: int) -> NDArray[np.int32]:
        """Row in `near` of each edge's sender."""
        name, indices = self._targets[edge_set], self.piece.rows[edge_set].indices
        low, high = self.piece.low[name], self.piece.high[name]
        others = high - low + np.searchsorted(self.piece.halo[name], indices)
        found = np.where((indices >= low) & (indices < high), indices - low, others).astype(np.int32)
        return read_only(found)

    def times(self, graph: HeteroGraph, relations: Iterable[Relation], name: str) -> dict[int, NDArray[np.int64]]:
        """Times of the edges of its rows, int64 [edges] by number of the edge set.

        Raises:
            UserError: see `time_draws.timed_sets`.
            DatasetDamaged: the parts lack the feature.
        """
        numbers = [each.number for each in timed_sets(graph, relations, name)]
        return {
            number: self._shards.times(number, name, *self._range, self.piece.rows[number].indptr) for number in numbers
        }

    def weights(
        self, graph: HeteroGraph, relations: Iterable[Relation], name: str
    ) -> dict[int, NDArray[np.float32]]:  # fmt: skip
        """Weights of the edges of its rows, float32 [edges] by number of the edge set.

        Args:
            graph: the whole graph.
            relations: edge sets that are read.
            name: name of the feature.

        Raises:
            UserError: see `edge_weights.weights_of`.
            DatasetDamaged: the parts lack the feature.
        """
        found = {}
        for relation in weighted_sets(graph, relations, name):
            values = self._edge_feature(relation.number, name)[:, 0]
            check_weights(graph, relation, name, values, partial(self._position, relation.number))
            found[relation.number] = values
        return found

    def edge_features(self, graph: HeteroGraph, shape: NetworkConfig) -> dict[int, NDArray[np.float32]]:
        """Features of the edges of its rows that layers read, float32 [edges, values] by number of the edge set.

        Raises:
            UserError: see `edge_features.edge_features_of`.
            DatasetDamaged: the parts lack a feature.
        """
        return {
            each.number: joined_features(
                graph, each.name, columns, [self._edge_feature(each.number, name) for name, _ in columns],
                shape.edge_scaling.get(each.name), partial(self._position, each.number),
            )
            for each in shape.levels()[0].relations if (columns := shape.edge_columns.get(each.name))
        }  # fmt: skip

    def _edge_feature(self, number: int, name: str) -> NDArray[np.float32]:
        return self._shards.edge_feature(number, name, *self._range, self.piece.rows[number].indptr)

    def _position(self, number: int, place: int) -> int:
        """Position in its set of the edge at a place among those of this worker's rows."""
        indptr, first = self.piece.rows[number].indptr, self.piece.first[number]
        row = int(np.searchsorted(indptr, place, "right")) - 1
        return int(first[row]) + place - int(indptr[row])
