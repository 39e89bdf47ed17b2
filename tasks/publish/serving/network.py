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

from .attention import Floats, attended, by_head, leaky, reduced
from .names import mapped

Link = tuple[int, str, str, str]
"""An edge set: its number, its name, the node sets of receivers and of senders."""
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
        features: by number of the edge set, what layers read of the edges, float32 [edges, values].
    """

    inputs: Mapping[str, Floats]
    starts: Mapping[int, NDArray[np.int64]]
    senders: Mapping[int, NDArray[np.int64]]
    weights: Mapping[int, Floats]
    features: Mapping[int, Floats]


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
        document, model = self.document, self.document["model"]
        act = "elu" if model in ("gat", "gatv2", "rgat") else "relu"
        if model in ("sage", "rgcn", "rgat"):
            made = (self._rgat if model == "rgat" else self._sage)(number, level, name, rows, new)
        else:
            (relation,) = level["relations"]
            layer = {"gcn": self._gcn, "gin": self._gin}.get(model, self._gat)
            made = layer(number, relation, rows[name], rows, new)
        if number == document["layers"] - 1 and document["jumping_knowledge"] == "none":
            return made
        place = f"{number}.{level['receivers'].index(name)}"
        made = _activated(self._normalized(f"norms.{place}", made, document["norm"]), act)
        if document["residual"]:
            matrix = self._tensors.get(f"shortcuts.{place}.weight")
            made = made + (rows[name] if matrix is None else rows[name] @ matrix.T)
        return made

    def _normalized(self, name: str, rows: Floats, kind: str) -> Floats:
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
                read = reduced(np.maximum, values, starts)
            else:
                read = reduced(np.add, values, starts) / np.maximum(np.diff(starts), 1).astype(np.float32)[:, None]
            out += read @ self._matrix(number, place, edge_set).T
        return out

    def _matrix(self, number: int, place: int, edge_set: int) -> Floats:
        bases = self._tensors.get(f"layers.{number}.bases")
        if bases is None:
            return np.asarray(self._tensors[f"layers.{number}.neighbours.{edge_set}.weight"])
        mixed: Floats = np.tensordot(self._tensors[f"layers.{number}.parts"][place], bases, 1)
        return mixed

    def _gcn(self, number: int, relation: Link, own: Floats, rows: Mapping[str, Floats], new: NewNodes) -> Floats:
        edge_set, starts, senders = relation[0], new.starts[relation[0]], new.senders[relation[0]]
        weights = new.weights.get(edge_set, np.ones(len(senders), np.float32))
        degrees = reduced(np.add, weights[:, None], starts)[:, 0]
        assert self._degrees is not None
        theirs = np.empty(len(senders), np.float32)
        there = senders >= 0
        theirs[there], theirs[~there] = self._degrees[senders[there]], degrees[-1 - senders[~there]]
        scale = (1 / np.sqrt(degrees + 1))[:, None].astype(np.float32)
        shares = (weights / np.sqrt(theirs + 1))[:, None].astype(np.float32)
        values: Floats = self._neighbours(number, edge_set, relation[3], rows, new) * shares
        total: Floats = (reduced(np.add, values, starts) + own * scale) * scale
        return self._linear(f"layers.{number}.linear", total)

    def _gin(self, number: int, relation: Link, own: Floats, rows: Mapping[str, Floats], new: NewNodes) -> Floats:
        edge_set, layer = relation[0], f"layers.{number}"
        values = self._neighbours(number, edge_set, relation[3], rows, new)
        if edge_set in new.features:
            values = _activated(values + self._linear(f"{layer}.of_edges", new.features[edge_set]), "relu")
        if edge_set in new.weights:
            values = values * new.weights[edge_set][:, None]
        hidden = self._linear(f"{layer}.first", own + reduced(np.add, values, new.starts[edge_set]))
        return self._linear(f"{layer}.second", _activated(self._normalized(f"{layer}.norm", hidden, "layer"), "relu"))

    def _gat(self, number: int, relation: Link, own: Floats, rows: Mapping[str, Floats], new: NewNodes) -> Floats:
        layer, found = f"layers.{number}", self._tensors
        near = self._neighbours(number, relation[0], relation[3], rows, new)
        starts = new.starts[relation[0]]
        counts = np.diff(starts)
        added: Any = np.float32(0)
        own_added: Any = np.float32(0)
        if relation[0] in new.features:
            features, matrix = new.features[relation[0]], found[f"{layer}.edges.weight"].T
            mean = reduced(np.add, features, starts) / np.maximum(counts, 1).astype(np.float32)[:, None]
            like = found[f"{layer}.{'of_edges' if self.document['model'] == 'gat' else 'scores'}"]
            added, own_added = (by_head(each @ matrix, like) for each in (features, mean))
            if self.document["model"] == "gat":
                added, own_added = ((each * like).sum(-1) for each in (added, own_added))
        if self.document["model"] == "gat":
            of_senders, of_receivers = (found[f"{layer}.{each}"] for each in ("of_senders", "of_receivers"))
            mine, near = (by_head(each @ found[f"{layer}.linear.weight"].T, of_senders) for each in (own, near))
            received = (mine * of_receivers).sum(-1)
            of_self = leaky((mine * of_senders).sum(-1) + received + own_added)
            of_edges = leaky((near * of_senders).sum(-1) + np.repeat(received, counts, axis=0) + added)
        else:
            scores = found[f"{layer}.scores"]
            mine, near = (by_head(self._linear(f"{layer}.of_senders", each), scores) for each in (own, near))
            receiving = by_head(self._linear(f"{layer}.of_receivers", own), scores)
            of_self = (leaky(mine + receiving + own_added) * scores).sum(-1)
            of_edges = (leaky(near + np.repeat(receiving, counts, axis=0) + added) * scores).sum(-1)
        summed = attended(near, of_edges, new.starts[relation[0]], (mine, of_self))
        return np.asarray(summed + found[f"{layer}.bias"])

    def _rgat(
        self, number: int, level: Mapping[str, Any], name: str, rows: Mapping[str, Floats], new: NewNodes
    ) -> Floats:
        out = self._linear(f"layers.{number}.own.{level['receivers'].index(name)}", rows[name])
        for edge_set, _, receivers, senders in level["relations"]:
            if receivers == name:
                layer, starts = f"layers.{number}.relations.{edge_set}", new.starts[edge_set]
                of_senders, of_receivers = (self._tensors[f"{layer}.{each}"] for each in ("of_senders", "of_receivers"))
                near = self._neighbours(number, edge_set, senders, rows, new)
                near = by_head(near @ self._tensors[f"{layer}.linear.weight"].T, of_senders)
                mine = by_head(rows[name] @ self._tensors[f"{layer}.receiving.weight"].T, of_senders)
                received = np.repeat((mine * of_receivers).sum(-1), np.diff(starts), axis=0)
                if edge_set in new.features:
                    values = by_head(new.features[edge_set] @ self._tensors[f"{layer}.edges.weight"].T, of_senders)
                    received = received + (values * self._tensors[f"{layer}.of_edges"]).sum(-1)
                out = out + attended(near, leaky((near * of_senders).sum(-1) + received), starts)
        return out

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
