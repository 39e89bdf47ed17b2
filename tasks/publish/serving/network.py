"""The trained network in NumPy: rows of new nodes, layer by layer, from stored rows of the nodes that were there.

A layer reads the new nodes' own rows and those of their neighbours. Neighbours that were there keep the rows that they
had in their own graph, and for GCN their degrees: a new edge changes neither, which is the usual approximation. So a
new node costs its neighbours, and not theirs. The formulas are those of `tasks.lib.gnn.model.layers`, with all
neighbours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .names import mapped

Floats = NDArray[np.float32]
_SLOPE = 0.2
_SMALL = 1e-5
_HEADER = 8


@dataclass(frozen=True)
class NewNodes:
    """New nodes of a request, and their edges.

    Args:
        inputs: by node set, what the first layer reads of them, float32 [new nodes, width].
        starts: by number of the edge set, offsets of the new receivers' edges, int64 [new nodes + 1].
        senders: by number of the edge set, the edges' other ends, int64 [edges]: the row of a node that was there, or
            -1 - i for new node i.
        weights: by number of the edge set, the edges' weights, float32 [edges].
    """

    inputs: Mapping[str, Floats]
    starts: Mapping[int, NDArray[np.int64]]
    senders: Mapping[int, NDArray[np.int64]]
    weights: Mapping[int, Floats]


class StoredNetwork:
    """A network with the rows of the nodes that were there.

    Args:
        folder: of the bundle.
        document: content of its `network.json`.
    """

    def __init__(self, folder: Path, document: Mapping[str, Any]):
        self.document, self._folder = document, folder
        self._tensors = tensors_of(folder / "network.safetensors")
        self._degrees = mapped(folder, "degrees") if document["model"] == "gcn" else None
        self._rows: dict[tuple[int, str], NDArray[Any]] = {}
        self._means: dict[str, Floats] = {}

    def stored(self, layer: int, node_set: str) -> NDArray[Any]:
        """Rows of the nodes that were there which a layer, from 0, reads: float32 or float16 [nodes, width]."""
        key = (layer, node_set)
        if key not in self._rows:
            about = self.document["sets"][node_set]
            if layer == 0 and about["embeddings"]:
                self._rows[key] = self._tensors[about["embeddings"]][: about["count"]]
            else:
                self._rows[key] = mapped(self._folder, f"rows-{layer}-{about['number']}")
        return self._rows[key]

    def mean(self, node_set: str) -> Floats:
        """Mean of what the first layer reads of all nodes of a set that were there, float32 [width]."""
        if node_set not in self._means:
            self._means[node_set] = np.asarray(self.stored(0, node_set).mean(axis=0, dtype=np.float64), np.float32)
        return self._means[node_set]

    def rows(self, new: NewNodes) -> dict[str, Floats]:
        """Outputs of the last layer for the new nodes by node set, float32 [new nodes, width]."""
        made, outputs, joining = dict(new.inputs), [], self.document["jumping_knowledge"]
        for number, level in enumerate(self.document["levels"]):
            made = {name: self._layer(number, level, name, made, new) for name in level["receivers"]}
            outputs.append(made)
        if joining == "none":
            return made
        kept = {name: [each[name] for each in outputs] for name in self.document["head"]["node_sets"]}
        return {name: self._linear("head", _joined(joining, rows)) for name, rows in kept.items()}

    def _layer(
        self, number: int, level: Mapping[str, Any], name: str, rows: Mapping[str, Floats], new: NewNodes
    ) -> Floats:
        """Rows of the new nodes of a set after a layer."""
        document, act = self.document, "relu"
        if document["model"] == "gcn":
            (relation,) = level["relations"]
            made = self._gcn(number, relation, rows[name], rows, new)
        elif document["model"] == "gat":
            (relation,) = level["relations"]
            made, act = self._gat(number, relation, rows[name], rows, new), "elu"
        else:
            made = self._sage(number, level, name, rows, new)
        if number == document["layers"] - 1 and document["jumping_knowledge"] == "none":
            return made
        place = f"{number}.{level['receivers'].index(name)}"
        made = _activated(self._normalized(f"norms.{place}", made), act)
        if document["residual"]:
            matrix = self._tensors.get(f"shortcuts.{place}.weight")
            made = made + (rows[name] if matrix is None else rows[name] @ matrix.T)
        return made

    def _normalized(self, name: str, rows: Floats) -> Floats:
        kind = self.document["norm"]
        if kind == "none":
            return rows
        if kind == "layer":
            mean, variance = rows.mean(1, keepdims=True), rows.var(1, keepdims=True)
        else:
            mean, variance = self._tensors[f"{name}.running_mean"], self._tensors[f"{name}.running_var"]
        scaled: Floats = (rows - mean) / np.sqrt(variance + np.float32(_SMALL))
        scaled *= self._tensors[f"{name}.weight"]
        return np.asarray(scaled + self._tensors[f"{name}.bias"])

    def _sage(
        self, number: int, level: Mapping[str, Any], name: str, rows: Mapping[str, Floats], new: NewNodes
    ) -> Floats:
        out = self._linear(f"layers.{number}.own.{level['receivers'].index(name)}", rows[name])
        pools = self.document["model"] == "sage" and self.document["aggregator"] == "pool"
        for place, (edge_set, _, receivers, senders) in enumerate(level["relations"]):
            if receivers != name:
                continue
            starts, values = new.starts[edge_set], self._neighbours(number, edge_set, senders, rows, new)
            if pools:
                values = _activated(self._linear(f"layers.{number}.pools.{edge_set}", values), "relu")
            if edge_set in new.weights:
                values = values * new.weights[edge_set][:, None]
            if pools:
                read = _reduced(np.maximum, values, starts)
            else:
                read = _reduced(np.add, values, starts) / np.maximum(np.diff(starts), 1).astype(np.float32)[:, None]
            out += read @ self._matrix(number, place, edge_set).T
        return out

    def _matrix(self, number: int, place: int, edge_set: int) -> Floats:
        bases = self._tensors.get(f"layers.{number}.bases")
        if bases is None:
            return np.asarray(self._tensors[f"layers.{number}.neighbours.{edge_set}.weight"])
        mixed: Floats = np.tensordot(self._tensors[f"layers.{number}.parts"][place], bases, 1)
        return mixed

    def _gcn(
        self, number: int, relation: tuple[int, str, str, str], own: Floats, rows: Mapping[str, Floats], new: NewNodes
    ) -> Floats:
        edge_set, starts, senders = relation[0], new.starts[relation[0]], new.senders[relation[0]]
        weights = new.weights.get(edge_set, np.ones(len(senders), np.float32))
        degrees = _reduced(np.add, weights[:, None], starts)[:, 0]
        assert self._degrees is not None
        theirs = np.empty(len(senders), np.float32)
        there = senders >= 0
        theirs[there], theirs[~there] = self._degrees[senders[there]], degrees[-1 - senders[~there]]
        scale = (1 / np.sqrt(degrees + 1))[:, None].astype(np.float32)
        shares = (weights / np.sqrt(theirs + 1))[:, None].astype(np.float32)
        values: Floats = self._neighbours(number, edge_set, relation[3], rows, new) * shares
        total: Floats = (_reduced(np.add, values, starts) + own * scale) * scale
        return self._linear(f"layers.{number}.linear", total)

    def _gat(
        self, number: int, relation: tuple[int, str, str, str], own: Floats, rows: Mapping[str, Floats], new: NewNodes
    ) -> Floats:
        edge_set, starts, layer = relation[0], new.starts[relation[0]], f"layers.{number}"
        of_senders, of_receivers = (self._tensors[f"{layer}.{each}"] for each in ("of_senders", "of_receivers"))
        heads, width = of_senders.shape
        mine = (own @ self._tensors[f"{layer}.linear.weight"].T).reshape(-1, heads, width)
        near = self._neighbours(number, edge_set, relation[3], rows, new) @ self._tensors[f"{layer}.linear.weight"].T
        near = near.reshape(-1, heads, width)
        counts, received = np.diff(starts), (mine * of_receivers).sum(-1)
        of_self = _leaky((mine * of_senders).sum(-1) + received)
        of_edges = _leaky((near * of_senders).sum(-1) + np.repeat(received, counts, axis=0))
        largest = np.maximum(of_self, _reduced(np.maximum, of_edges, starts, -np.inf))
        of_self, of_edges = np.exp(of_self - largest), np.exp(of_edges - np.repeat(largest, counts, axis=0))
        total = of_self + _reduced(np.add, of_edges, starts)
        summed = _reduced(np.add, (near * of_edges[:, :, None]).reshape(-1, heads * width), starts).reshape(mine.shape)
        shared = ((summed + mine * of_self[:, :, None]) / total[:, :, None]).reshape(-1, heads * width)
        found: Floats = shared + self._tensors[f"{layer}.bias"]
        return found

    def _linear(self, name: str, rows: Floats) -> Floats:
        made: Floats = rows @ self._tensors[f"{name}.weight"].T + self._tensors[f"{name}.bias"]
        return made

    def _neighbours(
        self, layer: int, edge_set: int, node_set: str, rows: Mapping[str, Floats], new: NewNodes
    ) -> Floats:
        """Rows of the edges' other ends that a layer reads, float32 [edges, width]."""
        senders, stored = new.senders[edge_set], self.stored(layer, node_set)
        out, there = np.empty((len(senders), stored.shape[1]), np.float32), senders >= 0
        out[there], out[~there] = stored[senders[there]], rows[node_set][-1 - senders[~there]]
        return out


def tensors_of(path: Path) -> dict[str, NDArray[Any]]:
    """Tensors of a safetensors file by name, mapped: a length, a header in JSON, and the values."""
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(_HEADER), "little")
        header = json.loads(stream.read(length))
    found: dict[str, NDArray[Any]] = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        if about["dtype"] != "F32":
            raise ValueError(f"{path.name}: {name} is {about['dtype']}, and weights are F32")
        shape, first = tuple(about["shape"]), about["data_offsets"][0]
        if 0 in shape:
            found[name] = np.zeros(shape, np.float32)
        else:
            found[name] = np.memmap(path, np.dtype("<f4"), "r", _HEADER + length + first, shape)
    return found


def _reduced(operation: np.ufunc, values: Floats, starts: NDArray[np.int64], empty: float = 0.0) -> Floats:
    """Values [edges, width] reduced over the edges of each receiver, [receivers, width]; `empty` where it has none."""
    out = np.full((len(starts) - 1, values.shape[1]), empty, np.float32)
    has = np.diff(starts) > 0
    if has.any():
        out[has] = operation.reduceat(values, starts[:-1][has], axis=0)
    return out


def _joined(kind: str, rows: list[Floats]) -> Floats:
    """Rows after each layer as jumping knowledge joins them."""
    if kind == "cat":
        return np.concatenate(rows, axis=1)
    return rows[-1] if kind == "last" else np.asarray(np.max(np.stack(rows), axis=0))


def _activated(values: Floats, name: str) -> Floats:
    if name == "relu":
        return np.maximum(values, 0)
    if name == "elu":
        return np.where(values > 0, values, np.expm1(np.minimum(values, 0)))
    return values


def _leaky(values: Floats) -> Floats:
    return np.where(values > 0, values, np.float32(_SLOPE) * values)
