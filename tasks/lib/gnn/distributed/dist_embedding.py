"""Learned embeddings in parts: the worker that owns a node holds its row, and alone changes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from superworkflow.tasks.lib.distributed.kv_store import KVRequest, KVStore
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.gnn.model.embedding_init import first_embeddings

Arrays = dict[str, NDArray[Any]]


class DistEmbedding:
    """The embeddings of this worker's nodes.

    Args:
        shape: configuration of the network, which decides the node sets that have embeddings.
        numbers: old numbers of the worker's nodes, by node set.
        store: access to the rows; used in the thread that trains.
        seed: seed of the first values.
        device: device of the network.
    """

    def __init__(
        self,
        shape: NetworkConfig,
        numbers: Mapping[str, NDArray[Any]],
        store: KVStore,
        seed: int,
        device: torch.device,
    ):
        self._store, self._device = store, device
        places = shape.numbers()
        self.rows = {
            name: nn.Parameter(torch.from_numpy(first_embeddings(
                numbers[name].astype(np.int64), shape.nodes[name], shape.hidden, seed, places[name]
            )))
            for name in shape.embedded()
        }  # fmt: skip

    def read(self, requests: Sequence[KVRequest]) -> dict[str, torch.Tensor]:
        """Current values of the rows that a step requests, as leaves with gradients. Collective."""
        if not self.rows:
            return {}
        tables = [self._values(each.node_set) for each in requests]
        found = self._store.rows(requests, tables, "learned rows")
        return {
            request.node_set: torch.from_numpy(rows).to(self._device).requires_grad_(True)
            for request, rows in zip(requests, found, strict=True)
        }

    def learn(self, requests: Sequence[KVRequest], rows: Mapping[str, torch.Tensor], share: float) -> None:
        """Send the gradients of rows, times `share`, to the owners, and set those of the owned rows. Collective."""
        if not self.rows:
            return
        values = []
        for each in requests:
            gradient = rows[each.node_set].grad
            whole = torch.zeros_like(rows[each.node_set]) if gradient is None else gradient * share
            values.append(whole.detach().cpu().numpy())
        received = self._store.push(requests, values, "gradients of learned rows")
        for request, (places, gradients) in zip(requests, received, strict=True):
            table = self.rows[request.node_set]
            indices = torch.from_numpy(places)[None]
            # Duplicates are summed in the order of the ranks.
            summed = torch.sparse_coo_tensor(indices, torch.from_numpy(gradients), table.shape, check_invariants=False)
            table.grad = summed.coalesce()

    def _values(self, name: str) -> NDArray[np.float32]:
        values: NDArray[np.float32] = self.rows[name].detach().numpy()
        return values

    def arrays(self) -> Arrays:
        """Copies of the rows of this worker's nodes, by node set."""
        return {name: self._values(name).copy() for name in self.rows}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Load rows; see `arrays`."""
        with torch.no_grad():
            for name, table in self.rows.items():
                table.copy_(torch.from_numpy(arrays[name]))
