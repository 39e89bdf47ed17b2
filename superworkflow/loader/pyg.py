"""Subgraphs through PyG's own loader: `torch_geometric.loader.NodeLoader` with this project's sampler and stores.

PyG from PyPI samples nothing by itself without pyg-lib or torch-sparse; this needs neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeAttr
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, NodeSamplerInput

from superworkflow.infra.base.errors import UserError
from superworkflow.loader.batch import batch_of, gathered
from superworkflow.loader.subgraphs import Subgraphs
from superworkflow.tasks.lib.graph.heterograph import STRING


def node_loader(subgraphs: Subgraphs, batch_size: int, **options: Any) -> NodeLoader:
    """PyG's loader of these subgraphs: batches are `HeteroData`, disjoint, the seeds first in their set.

    Args:
        subgraphs: `Subgraphs.live(…)`, or stored ones, whose random batches `batches` reads faster.
        batch_size: seeds of a batch.
        options: of `NodeLoader` and torch's `DataLoader`, such as ``shuffle=True``.

    Raises:
        UserError: the seeds are links.
    """
    if len(subgraphs.source.seed_sets) != 1:
        raise UserError("NodeLoader takes seeds that are nodes, these are links", remedy="Use Subgraphs.batches")
    stores = Features(subgraphs), CsrGraphStore(subgraphs)
    seeds = torch.from_numpy(subgraphs.seeds().astype(np.int64).reshape(-1))
    return NodeLoader(
        stores, SubgraphSampler(subgraphs), input_nodes=(subgraphs.source.seed_sets[0], seeds),
        input_id=torch.arange(len(seeds)), batch_size=batch_size, **options,
    )  # fmt: skip


class SubgraphSampler(BaseSampler):  # type: ignore[misc]
    """Returns the subgraphs whose numbers are the inputs' ids."""

    def __init__(self, subgraphs: Subgraphs):
        self._subgraphs = subgraphs

    def sample_from_nodes(self, index: NodeSamplerInput, **_: Any) -> HeteroSamplerOutput:
        """See `BaseSampler`; nodes of the seeds' set begin with the seeds in their order."""
        source = self._subgraphs.source
        batch = batch_of(self._subgraphs.picked(index.input_id.numpy()), source, lambda kind, items: [])
        node = {name: nodes.numbers for name, nodes in batch.nodes.items()}
        belongs = {name: nodes.subgraph for name, nodes in batch.nodes.items()}
        (seed_set,) = batch.seed_sets
        seeds = batch.seed_places[:, 0]
        others = torch.ones(len(node[seed_set]), dtype=torch.bool)
        others[seeds] = False
        order = torch.cat([seeds, others.nonzero()[:, 0]])
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        node[seed_set], belongs[seed_set] = node[seed_set][order], belongs[seed_set][order]
        row, column, edge = {}, {}, {}
        for name, edges in batch.edges.items():
            kind = edges.source, name, edges.target
            ends = [
                place[index] if end == seed_set else index
                for index, end in zip(edges.index, (edges.source, edges.target), strict=True)
            ]
            row[kind], column[kind], edge[kind] = *ends, edges.positions
        return HeteroSamplerOutput(
            node=node, row=row, col=column, edge=edge, batch=belongs, metadata=(index.input_id, index.time)
        )

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
        """Not supported: the seeds are nodes."""
        raise NotImplementedError("links are sampled by a spec with symmetric_link_seed_op, see Subgraphs.batches")


class Features(FeatureStore):  # type: ignore[misc]
    """Numeric features of nodes, read from memory-mapped files."""

    def __init__(self, subgraphs: Subgraphs):
        super().__init__()
        self.__dict__["_subgraphs"] = subgraphs

    def __reduce__(self) -> Any:  # for worker processes, which open the files again
        return Features, (self._subgraphs,)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        return [
            TensorAttr(group_name=nodes.name, attr_name=feature.name)
            for nodes in self._subgraphs.source.graph.node_sets.values()
            for feature in nodes.features
            if feature.dtype != STRING and not feature.is_ragged
        ]

    def _get_tensor(self, attr: TensorAttr) -> Tensor:
        values = self._values(attr)
        if isinstance(attr.index, slice) or attr.index is None:
            return torch.from_numpy(np.array(values[attr.index or slice(None)]))
        return torch.from_numpy(gathered(values, np.asarray(attr.index, np.int64)))

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...]:
        return tuple(self._values(attr).shape)

    def _values(self, attr: TensorAttr) -> Any:
        source = self._subgraphs.source
        return source.values("nodes", source.graph.node_sets[attr.group_name], attr.attr_name)

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        return False

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        return False


class CsrGraphStore(GraphStore):  # type: ignore[misc]
    """The edge sets, as compressed rows by source."""

    def __init__(self, subgraphs: Subgraphs):
        super().__init__()
        self.__dict__["_subgraphs"] = subgraphs

    def __reduce__(self) -> Any:
        return CsrGraphStore, (self._subgraphs,)

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        graph = self._subgraphs.source.graph
        return [
            EdgeAttr((edges.source, edges.name, edges.target), "csr",
                     size=(graph.node_sets[edges.source].count, graph.node_sets[edges.target].count))
            for edges in graph.edge_sets.values()
        ]  # fmt: skip

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor]:
        rows = self._subgraphs.source.graph.rows(edge_attr.edge_type[1])
        return torch.from_numpy(np.array(rows.indptr)), torch.from_numpy(np.array(rows.indices, np.int64))

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        return False

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        return False
