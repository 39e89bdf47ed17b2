"""Embeddings that are learned, each row held by the worker that owns its node, who alone changes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from superworkflow.tasks.lib.gnn.distributed.kv_store import KVRequest, KVStore
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.gnn.model.embedding_init import first_embeddings

Arrays = dict[str, NDArray[Any]]
_AT_ONCE = 16 << 20


class DistEmbedding:
    """The embeddings of this worker's nodes.

    Args:
        shape: of the network, which says which node sets have embeddings.
        numbers: old numbers of the worker's nodes, by node set.
        owners: how others are asked; used in the thread that trains.
        seed: of the first values.
        device: on which the network is.
    """

    def __init__(
        self,
        shape: NetworkConfig,
        numbers: Mapping[str, NDArray[Any]],
        owners: KVStore,
        seed: int,
        device: torch.device,
    ):
        self._owners, self._device, self._shape = owners, device, shape
        places = shape.numbers()
        self.rows = {
            name: nn.Parameter(torch.from_numpy(first_embeddings(
                numbers[name].astype(np.int64), shape.nodes[name], shape.hidden, seed, places[name]
            )))
            for name in shape.embedded()
        }  # fmt: skip

    def read(self, questions: Sequence[KVRequest]) -> dict[str, torch.Tensor]:
        """The rows that a step asks for as they are now, with room for gradients; all workers call it together."""
        if not self.rows:
            return {}
        tables = [self._values(each.node_set) for each in questions]
        found = self._owners.answers(questions, tables, "learned rows")
        return {
            question.node_set: torch.from_numpy(rows).to(self._device).requires_grad_(True)
            for question, rows in zip(questions, found, strict=True)
        }

    def learn(self, questions: Sequence[KVRequest], rows: Mapping[str, torch.Tensor], share: float) -> None:
        """Give the gradients of rows, times `share`, to the owners, and take those of one's own; all together."""
        if not self.rows:
            return
        values = []
        for each in questions:
            gradient = rows[each.node_set].grad
            whole = torch.zeros_like(rows[each.node_set]) if gradient is None else gradient * share
            values.append(whole.detach().cpu().numpy())
        given = self._owners.give(questions, values, "gradients of learned rows")
        for question, (places, gradients) in zip(questions, given, strict=True):
            table = self.rows[question.node_set]
            indices = torch.from_numpy(places)[None]
            # Summed in the order of the ranks.
            summed = torch.sparse_coo_tensor(indices, torch.from_numpy(gradients), table.shape, check_invariants=False)
            table.grad = summed.coalesce()

    def _values(self, name: str) -> NDArray[np.float32]:
        values: NDArray[np.float32] = self.rows[name].detach().numpy()
        return values

    def arrays(self) -> Arrays:
        """Copies of the rows of this worker's nodes, by node set."""
        return {name: self._values(name).copy() for name in self.rows}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take rows; see `arrays`."""
        with torch.no_grad():
            for name, table in self.rows.items():
                table.copy_(torch.from_numpy(arrays[name]))


def gathered(owners: KVStore, node_set: str, count: int, table: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """The rows of all nodes of a set in the order of their old numbers, on the first rank; all workers call it.

    Args:
        owners: of the nodes.
        node_set, count: the set, and how many nodes it has.
        table: of this worker's nodes [nodes, width].
        out: [count, width], filled on the first rank.
    """
    first_rank = owners.exchange.rank == 0
    at_once = max(1, _AT_ONCE // (4 * max(1, table.shape[1])))
    for first in range(0, count, at_once):
        nodes = np.arange(first, min(count, first + at_once) if first_rank else first)
        (rows,) = owners.rows_of([(node_set, nodes, table)])
        out[first : first + len(nodes)] = rows
