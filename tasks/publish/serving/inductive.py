"""Nodes of a request: those of the bundle by their rows, new ones by their features and neighbours.

A new node has a name that its request gives it, or none. It is described once; whatever else in the request names it,
such as another new node's neighbours, means this one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .attention import Floats
from .names import Names, is_missing, name_of
from .network import NewNodes, StoredNetwork

_SHOWN = 5
_NO_VALUES = np.empty(0, np.float32)
Edge = tuple[str, float, Floats]
"""Name of a neighbour, and the edge's weight and features."""


@dataclass(frozen=True)
class NodeQuery:
    """A node as a row of a request has it.

    Args:
        node_set: its set.
        node: its name, as it was given.
        features: a list of numbers, or a mapping of names to numbers; None for none.
        neighbors: a list of names, or such lists by edge set; None for none.
        weights: weights of the edges to them, in the same form; None for none.
        column: of the request that has its name.
        edge_features: features of these edges, in the same form; None for none.
    """

    node_set: str
    node: Any
    features: Any = None
    neighbors: Any = None
    weights: Any = None
    column: str = "node"
    edge_features: Any = None

    @property
    def name(self) -> str | None:
        return name_of(self.node)

    @property
    def describes(self) -> bool:
        """True if the row describes a node, rather than only naming one."""
        return not (is_missing(self.features) and is_missing(self.neighbors))

    def same_as(self, other: NodeQuery) -> bool:
        """True if both rows describe the node alike."""
        mine, others = (
            repr((each.features, each.neighbors, each.weights, each.edge_features)) for each in (self, other)
        )
        return mine == others


@dataclass
class _New:
    """A described node: its input of the first layer (None: the mean of its neighbours'), and neighbours."""

    query: NodeQuery
    number: int
    features: Floats | None
    edges: dict[int, list[Edge]] = field(default_factory=dict)
    senders: dict[int, list[tuple[int, float, Floats]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Answered:
    """Places of the nodes of a request.

    Args:
        rows: of each node, its row among those of its set that were there; -1 for none.
        made: of each node, what the network makes of it, where it is new.
        errors: of each node, why it has neither; empty where it has.
        neighbors: of each new node, the rows of its neighbours that were there, by number of the edge set.
    """

    rows: NDArray[np.int64]
    made: list[Floats | None]
    errors: list[str]
    neighbors: list[dict[int, list[int]]]


class NodeReader:
    """Finds nodes of requests in a bundle, and computes new ones.

    Args:
        folder: of the bundle.
        names: nodes of the bundle by node set.
        network: the stored network; None where the bundle has none.
        lacking: why it has none.
    """

    def __init__(self, folder: Path, names: Mapping[str, Names], network: StoredNetwork | None, lacking: str = ""):
        self._names, self._network = names, network
        self._lacking = lacking or "it was published without its network"
        if network is not None:
            document = network.document
            self._sets = document["sets"]
            self._relations = {each[0]: each for level in document["levels"] for each in level["relations"]}
            self._backward = {int(number): other for number, other in document["reverse"].items()}
            self._names = {
                name: names[name] if name in names else Names(folder, f"set-{about['number']}-", f"nodes of set {name}")
                for name, about in self._sets.items()
            }

    def answers(self, queries: Sequence[NodeQuery]) -> Answered:
        """Places of nodes; what is wrong with one does not hinder others."""
        rows, errors = np.full(len(queries), -1, np.int64), [""] * len(queries)
        described: dict[tuple[str, str | int], _New] = {}
        first: dict[tuple[str, str | int], int] = {}
        keys = [(each.node_set, each.name if each.name is not None else place) for place, each in enumerate(queries)]
        for place, (key, each) in enumerate(zip(keys, queries, strict=True)):
            if not each.describes:
                continue
            try:
                if key in first:
                    if not each.same_as(queries[first[key]]):
                        raise ValueError(f"node {each.name!r} is described in two ways")
                    continue
                first[key] = place
                described[key] = self._described(each, len(described))
            except ValueError as error:
                errors[place] = str(error)
        failed = {keys[place]: text for place, text in enumerate(errors) if text}
        self._connect(described, failed)
        outputs = self._computed(described)
        made: list[Floats | None] = [None] * len(queries)
        neighbors: list[dict[int, list[int]]] = [{} for _ in queries]
        for place, (key, each) in enumerate(zip(keys, queries, strict=True)):
            if errors[place]:
                continue
            if key in failed:
                errors[place] = failed[key]
            elif key in outputs:
                made[place], neighbors[place] = outputs[key], {
                    number: [place for place, *_ in senders if place >= 0]
                    for number, senders in described[key].senders.items()
                }  # fmt: skip
            else:
                try:
                    rows[place] = self._row(each)
                except ValueError as error:
                    errors[place] = str(error)
        return Answered(rows, made, errors, neighbors)

    def within(self, node_set: str, neighbors: Mapping[int, list[int]]) -> list[int]:
        """Rows of the neighbours of a new node that are of a node set."""
        return [row for number, rows in neighbors.items() if self._relations[number][3] == node_set for row in rows]

    def _row(self, query: NodeQuery) -> int:
        """Row of a node that is only named."""
        name = query.name
        if name is None:
            raise ValueError(f"no `{query.column}` is given")
        if query.node_set not in self._names:
            raise ValueError(f"no set {query.node_set!r} of nodes: give one of {', '.join(self._names)}")
        try:
            return self._names[query.node_set].row(name)
        except ValueError as error:
            if self._network is None:
                raise
            needed = "neighbors" if self._sets[query.node_set]["embeddings"] else "features and neighbors"
            raise ValueError(f"{error}: give its {needed}") from None

    def _described(self, query: NodeQuery, number: int) -> _New:
        """A described node, whose neighbours are still names."""
        if self._network is None:
            raise ValueError(
                f"this model answers for the nodes that it was made of, and not for new ones: {self._lacking}"
            )
        if query.node_set not in self._sets:
            raise ValueError(f"no set {query.node_set!r} of nodes: give one of {', '.join(self._sets)}")
        about, row = self._sets[query.node_set], -1
        if query.name is not None:
            with contextlib.suppress(ValueError):
                row = self._names[query.node_set].row(query.name)
        who = f"node {query.name!r}" if query.name is not None else "a node without a name"
        if row >= 0 and is_missing(query.neighbors):
            raise ValueError(f"{who} comes with other features: give its neighbors too, which the model does not keep")
        new = _New(query, number, None)
        if not is_missing(query.features):
            new.features = _vector(query.features, about, who)
        elif row >= 0:
            new.features = np.array(self._network.stored(0, query.node_set)[row], np.float32)
        elif not about["embeddings"]:
            raise ValueError(f"{who} needs features: {_layout(about)}")
        new.edges = self._edges(query, who)
        if new.features is None and not any(new.edges.values()):
            raise ValueError(f"{who} needs neighbors: nodes of its set are known by these, and not by features")
        return new

    def _edges(self, query: NodeQuery, who: str) -> dict[int, list[Edge]]:
        """Neighbours of a described node by number of the edge set."""
        mine = {each[1]: each[0] for each in self._relations.values() if each[2] == query.node_set}
        neighbors = {} if is_missing(query.neighbors) else query.neighbors
        weights = {} if is_missing(query.weights) else query.weights
        if not isinstance(neighbors, Mapping):
            if len(mine) != 1:
                raise ValueError(f"neighbors of {who} must be lists by edge set: {', '.join(mine) or 'it has none'}")
            neighbors = {next(iter(mine)): neighbors}
        features = {} if is_missing(query.edge_features) else query.edge_features
        if not isinstance(weights, Mapping):
            weights = {next(iter(neighbors), ""): weights}
        if not isinstance(features, Mapping):
            features = {next(iter(neighbors), ""): features}
        found: dict[int, list[Edge]] = {number: [] for number in mine.values()}
        for edge_set, given in neighbors.items():
            if edge_set not in mine:
                raise ValueError(f"no edge set {edge_set!r} starts at {who}: give {', '.join(mine) or 'none'}")
            names = [name_of(each) for each in _listed(given, f"neighbors of {who}")]
            if None in names:
                raise ValueError(f"a neighbor of {who} has no name")
            each = _listed(weights.get(edge_set, [1.0] * len(names)), f"weights of {who}")
            if len(each) != len(names):
                raise ValueError(f"{who} has {len(each)} weights of {len(names)} neighbors")
            if not all(_is_number(value) and value >= 0 for value in each):
                raise ValueError(f"weights of {who} must be numbers from 0")
            values = self._edge_values(edge_set, features.get(edge_set), len(names), who)
            edges = [(str(name), float(value), own) for name, value, own in zip(names, each, values, strict=True)]
            number = mine[edge_set]
            found[number] = _once(edges, query.name) if self._backward.get(number) == number else edges
        return found

    def _edge_values(self, edge_set: str, given: Any, count: int, who: str) -> list[Floats]:
        """Features of the edges of a described node, in the order of the network's inputs."""
        assert self._network is not None
        document = self._network.document
        columns = document.get("edge_columns", {}).get(edge_set)
        if columns is None:
            if given is not None:
                raise ValueError(f"{who} has features of edges, and the model reads none of {edge_set}")
            return [_NO_VALUES] * count
        about = {"columns": columns, "embeddings": "", "scaling": document["edge_scaling"].get(edge_set, {})}
        if given is None and count:
            raise ValueError(f"{who} needs edge_features: of each edge {_layout(about)}")
        each = _listed(given or [], f"edge_features of {who}")
        if len(each) != count:
            raise ValueError(f"{who} has features of {len(each)} edges to {count} neighbors")
        return [_vector(values, about, f"an edge of {who}") for values in each]

    def _connect(self, described: dict[tuple[str, str | int], _New], failed: dict[Any, str]) -> None:
        """Replace names of neighbours by their places; what cannot be is moved to `failed`, and what needs it too."""
        for key in failed:
            described.pop(key, None)
        before = -1
        while before != len(described):
            before = len(described)
            for key, new in list(described.items()):
                try:
                    for number, edges in new.edges.items():
                        for name, *_ in edges:
                            self._place((self._relations[number][3], name), described, failed)
                except ValueError as error:
                    failed[key] = str(error)
                    del described[key]
        counts: dict[str, int] = {}
        for new in described.values():
            new.number = counts.get(new.query.node_set, 0)
            counts[new.query.node_set] = new.number + 1
        for new in described.values():
            for number, edges in new.edges.items():
                ends = self._relations[number][3]
                new.senders[number] = [
                    (self._place((ends, name), described, failed), weight, values) for name, weight, values in edges
                ]
        by_place = {(new.query.node_set, -1 - new.number): new for new in described.values()}
        for new in described.values():
            for number, senders in list(new.senders.items()):
                other = self._backward.get(number)
                for place, weight, values in list(senders) if other is not None else ():
                    if place < 0:
                        back = by_place[self._relations[number][3], place].senders.setdefault(int(other or 0), [])
                        if all(each != -1 - new.number for each, *_ in back):
                            back.append((-1 - new.number, weight, values))

    def _place(self, key: tuple[str, str], described: Mapping[Any, _New], failed: Mapping[Any, str]) -> int:
        """Row of a neighbour that was there, or -1 - i for the new node i of its set."""
        if key in described:
            return -1 - described[key].number
        if key in failed:
            raise ValueError(f"its neighbor {key[1]!r} has no answer either: {failed[key]}")
        try:
            return self._names[key[0]].row(key[1])
        except ValueError as error:
            raise ValueError(f"a neighbor is unknown: {error}, nor described in this request") from None

    def _computed(self, described: Mapping[tuple[str, str | int], _New]) -> dict[tuple[str, str | int], Floats]:
        """Rows that the network makes of the described nodes."""
        if self._network is None or not described:
            return {}
        by_set: dict[str, list[_New]] = {name: [] for name in self._sets}
        for new in described.values():
            by_set[new.query.node_set].append(new)
        weighted = bool(self._network.document["weight"])
        starts, senders, weights, features = {}, {}, {}, {}
        for number, edge_set, receivers, _ in self._relations.values():
            lists = [new.senders.get(number, []) for new in by_set[receivers]]
            starts[number] = np.concatenate([[0], np.cumsum([len(each) for each in lists], dtype=np.int64)])
            senders[number] = np.array([place for each in lists for place, *_ in each], np.int64)
            if weighted:
                weights[number] = np.array([weight for each in lists for _, weight, _ in each], np.float32)
            if columns := self._network.document.get("edge_columns", {}).get(edge_set):
                values = [own for each in lists for _, _, own in each]
                width = sum(size for _, size in columns)
                features[number] = np.array(values, np.float32).reshape(len(values), width)
        inputs = {
            name: np.array([self._input(new, described) for new in news], np.float32).reshape(len(news), -1)
            if news
            else np.empty((0, self._network.stored(0, name).shape[1]), np.float32)
            for name, news in by_set.items()
        }  # fmt: skip
        rows = self._network.rows(NewNodes(inputs, starts, senders, weights, features))
        return {
            key: rows[key[0]][new.number] if key[0] in rows else np.empty(0, np.float32)
            for key, new in described.items()
        }

    def _input(self, new: _New, described: Mapping[Any, _New]) -> Floats:
        """Input of the first layer of a new node; without features the mean of its neighbours' learned embeddings.

        Neighbours of sets with features have none of these: of such alone it is the mean of all nodes of its own set.
        """
        assert self._network is not None
        if new.features is not None:
            return new.features
        found: list[Any] = []
        for number, senders in new.senders.items():
            node_set = self._relations[number][3]
            if self._sets[node_set]["embeddings"]:
                places = [place for place, *_ in senders if place >= 0]
                found.append(self._network.stored(0, node_set)[places])
        rows = np.concatenate(found) if found else np.empty((0, 0))
        return np.asarray(rows.mean(axis=0), np.float32) if len(rows) else self._network.mean(new.query.node_set)


def _once(edges: list[Edge], own: str | None) -> list[Edge]:
    """Edges without loops, each once with its weights' sum, as they are in the graph of an edge list.

    Edges with features are not merged, there as here.
    """
    merged: dict[str, float] = {}
    if any(len(values) for *_, values in edges):
        return [each for each in edges if each[0] != own]
    for name, weight, _ in edges:
        if name != own:
            merged[name] = merged.get(name, 0.0) + weight
    return [(name, weight, _NO_VALUES) for name, weight in merged.items()]


def _vector(given: Any, about: Mapping[str, Any], who: str) -> Floats:
    """Features of a node in the order of the network's inputs; a missing value is the mean of those of training."""
    columns: list[list[Any]] = about["columns"]
    width = sum(size for _, size in columns)
    if about["embeddings"]:
        raise ValueError(f"{who} has features, and the model reads none of its set")
    if isinstance(given, Mapping):
        names = [name for name, _ in columns]
        missing, strange = [each for each in names if each not in given], [each for each in given if each not in names]
        if missing or strange:
            lack = f"lacks {', '.join(map(str, missing[:_SHOWN]))}" if missing else ""
            more = f"has {', '.join(map(str, strange[:_SHOWN]))}, which the model does not read" if strange else ""
            raise ValueError(f"{who} {' and '.join(filter(None, (lack, more)))}; the model reads {_layout(about)}")
        categories = about.get("scaling", {}).get("categories", {})
        given = [
            value for name, size in columns
            for value in _values(given[name], size, categories.get(name), f"{name} of {who}")
        ]  # fmt: skip
    values = _listed(given, f"features of {who}")
    if len(values) != width:
        raise ValueError(f"{who} has {len(values)} features, and the model reads {_layout(about)}")
    try:
        found = np.array(values, np.float32)
    except (TypeError, ValueError):
        found = np.full(width, np.nan, np.float32)
    if means := about.get("scaling", {}).get("fill"):
        found = np.where(np.isnan(found), np.array(means, np.float32), found) if found.shape == (width,) else found
    if found.shape != (width,) or not np.isfinite(found).all():
        raise ValueError(f"a feature of {who} is not a finite number")
    return _scaled(found, about.get("scaling", {}))


def _values(given: Any, size: int, categories: Sequence[str] | None, what: str) -> list[Any]:
    """Numbers of one feature; a text becomes a 1 in the place of its category; NaN for a missing one."""
    if is_missing(given):
        return [np.nan] * size
    if categories is None or not isinstance(given, str):
        return list(np.ravel(np.asarray(given, object)).tolist())
    if given not in categories:
        raise ValueError(f"{what} is {given!r}, and the model knows {', '.join(categories[:_SHOWN])}")
    return [float(given == each) for each in categories]


def _scaled(values: Floats, scaling: Mapping[str, Any]) -> Floats:
    """A node's values as those that the network was trained on were scaled."""
    wide = values.astype(np.float64)
    if scaling.get("kind") == "row":
        wide /= np.abs(wide).sum() or 1.0
    elif scaling.get("kind") in ("standard", "quantile", "piecewise"):
        plain = (wide - np.array(scaling["mean"])) / np.array(scaling["scale"])
        knots, scores = scaling.get("knots"), scaling.get("scores")
        parts = [plain[[i]] if not knots or not knots[i] else _on_curve(wide[i], knots[i], scores[i] if scores else [])
                 for i in range(len(wide))]  # fmt: skip
        wide = np.concatenate(parts) - np.array(scaling.get("center") or [0.0])
    return wide.astype(np.float32)


def _on_curve(value: float, knots: list[float], scores: list[float]) -> NDArray[np.float64]:
    """Score of a value; without scores its place in each interval between knots, 0 to 1."""
    if scores:
        return np.array([np.interp(value, knots, scores)])
    edges = np.array(knots)
    return np.array(np.clip((value - edges[:-1]) / np.diff(edges), 0, 1))


def _layout(about: Mapping[str, Any]) -> str:
    """Description of the features that the network reads of a set."""
    columns = about["columns"]
    texts = [name if size == 1 else f"{size} of {name}" for name, size in columns[:_SHOWN]]
    more = ", …" if len(columns) > _SHOWN else ""
    return f"{sum(size for _, size in columns)} numbers ({', '.join(texts)}{more})"


def _listed(given: Any, what: str) -> list[Any]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(f"{what} must be a list, and not {given!r}")
    return list(given)


def _is_number(value: Any) -> bool:
    try:
        return bool(np.isfinite(float(value)))
    except (TypeError, ValueError):
        return False
