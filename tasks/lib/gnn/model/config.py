"""Configuration of a network, stored with its weights; free of torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from superworkflow.infra.base.errors import DatasetDamaged
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.safe_names import reason_of
from superworkflow.tasks.lib.gnn.column_scaling import KINDS, PIECEWISE, QUANTILE, STANDARD, width_of
from superworkflow.tasks.lib.gnn.relations import LayerSchema, Relation

FORMAT = 2
NETWORK_FILE = "network.json"
MODELS = ("sage", "gcn", "gat", "gatv2", "gin", "rgcn", "rgat")
ONE_KIND, ATTENTION = ("gcn", "gat", "gatv2", "gin"), ("gat", "gatv2", "rgat")
"""Models of graphs with one node set and one edge set, and models with heads of attention."""
READS_EDGES = ("gat", "gatv2", "gin", "rgat")
"""Models whose layers read features of edges."""
CLASSIFICATION, REGRESSION, LINKS = "node_classification", "node_regression", "link_prediction"
EDGE_CLASSIFICATION, EDGE_REGRESSION = "edge_classification", "edge_regression"
DECODERS, MLP = ("dot", "distmult", "complex"), "mlp"
"""Decoders that score links, and that of classes and numbers of edges."""
NORMS, JOININGS = ("none", "layer", "batch"), ("none", "last", "cat", "max")


def reads_means(model: str, aggregator: str) -> bool:
    """True if a network's layers read means of neighbours' rows."""
    return model == "rgcn" or (model == "sage" and aggregator == "mean")


@dataclass(frozen=True)
class Head:
    """Output of a network's last layer, and its task.

    Args:
        task: `CLASSIFICATION`, `REGRESSION`, `LINKS`, `EDGE_CLASSIFICATION` or `EDGE_REGRESSION`.
        node_sets: node sets whose rows the layer makes.
        width: width of these rows.
        classes: for classifications, names of the classes.
        label: but for `LINKS`, the learned feature as SET.FEATURE, or column of an edge list.
        edges: for pairs of nodes, their edge set; of several relations the first.
        decoder: for `LINKS`, one of `DECODERS`, which score two nodes' rows; for edges `MLP`.
        several: for `CLASSIFICATION`, nodes may have several classes: sigmoids instead of a softmax.
        relations: for `LINKS` of several relations, their edge sets; the decoder has factors of each.
        mean, scale: for regressions, a number is the output's value times `scale`, plus `mean`.
    """

    task: str
    node_sets: tuple[str, ...]
    width: int
    classes: tuple[str, ...] = ()
    label: str = ""
    edges: str = ""
    decoder: str = ""
    several: bool = False
    mean: float = 0.0
    scale: float = 1.0
    relations: tuple[str, ...] = ()

    @property
    def of_pairs(self) -> bool:
        """True if a decoder predicts of pairs of nodes from the rows of both; else the rows are the predictions."""
        return bool(self.decoder)

    @property
    def outputs(self) -> int:
        """Values that the decoder `MLP` makes of a pair."""
        return len(self.classes) or 1

    def fault(self) -> str:
        """Description of a fault; empty if there is none."""
        texts = (self.task, self.label, self.edges, self.decoder, *self.node_sets, *self.classes, *self.relations)
        if not self.node_sets or not all(isinstance(each, str) for each in texts):
            return "no node set, or one without a name"
        if not isinstance(self.width, int) or self.width < 1:
            return "a width is not a positive number"
        if self.several not in (False, True):
            return "neither one class a node nor several"
        if self.task == LINKS:
            return "" if self.decoder in DECODERS[bool(self.relations) :] else "no such decoder"
        if self.of_pairs != (self.task in (EDGE_CLASSIFICATION, EDGE_REGRESSION)) or self.decoder not in ("", MLP):
            return "no such decoder"
        if self.task in (REGRESSION, EDGE_REGRESSION):
            usable = math.isfinite(self.mean) and math.isfinite(self.scale) and self.scale > 0
            return "" if usable and (self.width == 1 or self.of_pairs) else "no scale of numbers"
        if self.task == EDGE_CLASSIFICATION:
            return "" if len(self.classes) > 1 else "classes without names"
        if self.task != CLASSIFICATION:
            return "no such task"
        return "" if self.width == len(self.classes) > 1 else "classes without names"


@dataclass(frozen=True)
class SeedTimes:
    """Rule by which edges are drawn around a seed that has a time: those that are not after it.

    Args:
        feature: feature of the labelled nodes that is their time; of links that of their edges.
        edges: feature of edges that is their time.
        latest: each node's latest edges, instead of any.
        fanouts: fan-out of each hop from the targets outwards, -1 for all.
        seed: seed of the draws.
    """

    feature: str
    edges: str
    latest: bool
    fanouts: tuple[int, ...]
    seed: int


@dataclass(frozen=True)
class NetworkConfig:
    """Configuration of a network.

    Args:
        model: one of `MODELS`.
        aggregator: `mean` or `pool`, for sage.
        layers: number of layers.
        hidden: width of all layers but the last.
        heads: number of heads of the hidden layers of gat, gatv2 and rgat.
        bases: number of rgcn's bases; 0 for a matrix for each relation.
        head: output of the last layer.
        nodes: sizes of the node sets.
        widths: widths of their features; a set of width 0 learns embeddings of width `hidden`.
        relations: all edge sets.
        weight: feature of edges that multiplies messages; empty for none.
        scaling: by node set, how its features were scaled before training: `kind`, one of `column_scaling.KINDS`; for
            all but none and row `mean` and `scale` of each number of the table, for quantile `knots` and `scores`, for
            piecewise `knots`, and `center` of each value; `fill`, the mean of each number, which stands for a missing
            one; and `categories`, the texts of columns of categories, by name.
        columns: names and widths of the values of each node set's features, in their order, where they are recorded.
        norm: one of `NORMS`, of the hidden layers' outputs, before the activation.
        residual: hidden layers add their input to their output.
        jumping_knowledge: one of `JOININGS`; but for `none` all layers are hidden ones, whose joined outputs a linear
            head reads (Xu et al., ICML 2018).
        code: text of the file of a module of one's own, which `model` names as FILE.py:CLASS; else empty.
        times: how edges were drawn around seeds with times; None where seeds have none.
        edge_columns: by edge set, names and widths of the features of edges that layers read, in their order.
        edge_scaling: by edge set, how these are scaled as they are read; as in `scaling`.
    """

    model: str
    aggregator: str
    layers: int
    hidden: int
    heads: int
    bases: int
    head: Head
    nodes: Mapping[str, int]
    widths: Mapping[str, int]
    relations: tuple[Relation, ...]
    weight: str = ""
    columns: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    scaling: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    norm: str = "none"
    residual: bool = False
    jumping_knowledge: str = "none"
    code: str = ""
    times: SeedTimes | None = None
    edge_columns: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    edge_scaling: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def edge_width(self, edge_set: str) -> int:
        """Values of an edge of a set that layers read; 0 for none."""
        return sum(width for _, width in self.edge_columns.get(edge_set, ()))

    def levels(self) -> list[LayerSchema]:
        """Layers, first layer first."""
        found: list[LayerSchema] = []
        receivers = set(self.head.node_sets)
        for _ in range(self.layers):
            used = tuple(each for each in self.relations if each.receivers in receivers)
            senders = receivers | {each.senders for each in used}
            found.append(LayerSchema(tuple(sorted(receivers)), used, tuple(sorted(senders))))
            receivers = senders
        return found[::-1]

    def width_in(self, layer: int, node_set: str) -> int:
        """Width of the rows of a node set that a layer, from 0, reads."""
        return self.hidden if layer else self.widths[node_set] or self.hidden

    def width_out(self, layer: int) -> int:
        """Width of the rows that a layer makes."""
        return self.hidden if self.is_hidden(layer) else self.head.width

    def is_hidden(self, layer: int) -> bool:
        """True if a layer, from 0, has an activation after it: the others make the network's output."""
        return layer < self.layers - 1 or self.joins

    @property
    def joins(self) -> bool:
        """True if a linear head reads the outputs of all layers."""
        return self.jumping_knowledge != "none"

    @property
    def joined_width(self) -> int:
        """Width of what that head reads."""
        return self.hidden * (self.layers if self.jumping_knowledge == "cat" else 1)

    @property
    def is_plain(self) -> bool:
        """True if nothing but the activation comes after a hidden layer, which the layer then may apply itself."""
        return self.norm == "none" and not self.residual and not self.joins

    @property
    def reads_means(self) -> bool:
        """True if layers read means of neighbours' rows, which the first layer can read from tables of all nodes."""
        return reads_means(self.model, self.aggregator)

    def numbers(self) -> dict[str, int]:
        """Numbers of the node sets in random streams."""
        return {name: number for number, name in enumerate(sorted(self.nodes))}

    def embedded(self) -> list[str]:
        """Node sets that learn embeddings."""
        return [name for name in self.levels()[0].senders if not self.widths[name]]

    def document(self) -> dict[str, Any]:
        """Document in `network.json`."""
        return {"format": FORMAT, **asdict(self), "relations": [list(each) for each in self.relations]}


def check_scaling(document: Mapping[str, Any], width: int) -> None:
    """Check a scaling of features; see `NetworkConfig`.

    Raises:
        ValueError: it is none of features of this width.
    """
    kind, mean, scale = document["kind"], document["mean"], document["scale"]
    if kind not in KINDS:
        raise ValueError("no such scaling")
    knots, scores, center, fill = (document.get(name, ()) for name in ("knots", "scores", "center", "fill"))
    columns = len(mean) if kind == PIECEWISE else width
    by_column, curved = columns * (kind in (STANDARD, QUANTILE, PIECEWISE)), columns * (kind in (QUANTILE, PIECEWISE))
    finite = all(map(math.isfinite, (*mean, *scale, *fill, *center)))
    if {len(mean), len(scale)} != {by_column} or len(fill) not in (0, columns) or not finite or 0 in scale:
        raise ValueError("a scaling of other features")
    if len(knots) != curved or len(scores) != columns * (kind == QUANTILE) or width_of(document, width) != width:
        raise ValueError("a scaling of other features")
    if len(center) != width * (kind == PIECEWISE) or any(map(_falls, (*knots, *scores))):
        raise ValueError("a scaling of other features, or whose curves do not rise")
    if any(len(each) != len(knot) for each, knot in zip(scores, knots, strict=False)) or 1 in map(len, knots):
        raise ValueError("a scaling whose curves do not rise")


def _falls(curve: Sequence[float]) -> bool:
    """True where numbers do not all rise."""
    return not np.isfinite(curve).all() or bool((np.diff(curve) <= 0).any())


def read_shape(dataset: Dataset) -> NetworkConfig:
    """Configuration of the network in a dataset of stage train.

    Raises:
        DatasetDamaged: the document is invalid.
    """
    try:
        document = dict(dataset.json(NETWORK_FILE))
        if document.pop("format") != FORMAT:
            raise ValueError(f"this version reads format {FORMAT}")
        document["relations"] = tuple(Relation(*each) for each in document["relations"])
        head: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in document["head"].items()
        }
        document["head"] = Head(**head)
        for part in ("columns", "edge_columns"):
            document[part] = {
                name: tuple((str(each), int(width)) for each, width in found)
                for name, found in document.get(part, {}).items()
            }
        if (times := document.get("times")) is not None:
            document["times"] = SeedTimes(**times | {"fanouts": tuple(map(int, times["fanouts"]))})
        shape = NetworkConfig(**document)
        if shape.times is not None and len(shape.times.fanouts) != shape.layers:
            raise ValueError("fan-outs of another number of layers")
        for name, found in shape.scaling.items():
            check_scaling(found, shape.widths[name])
        for name, found in shape.edge_scaling.items():
            check_scaling(found, shape.edge_width(name))
        if not isinstance(shape.weight, str):
            raise ValueError("the name of a feature is no text")
        if shape.norm not in NORMS or shape.jumping_knowledge not in JOININGS or shape.residual not in (False, True):
            raise ValueError("no such norm, residual or jumping knowledge")
        if shape.code != dataset.manifest.params.get("code", ""):  # the digest covers that one
            raise ValueError("the code is not that which it was trained with")
        if (shape.model not in MODELS and not shape.code) or shape.head.fault():
            raise ValueError(shape.head.fault() or "no such model")
        sets = {
            *shape.head.node_sets,
            *(each.receivers for each in shape.relations),
            *(each.senders for each in shape.relations),
        }
        counts = [shape.layers, shape.hidden, shape.heads, *(1 + each for each in shape.nodes.values())]
        if not all(isinstance(each, int) and each > 0 for each in counts) or shape.layers > 64:
            raise ValueError("a size is not a positive number")
        if not sets <= shape.nodes.keys() or not sets <= shape.widths.keys():
            raise ValueError("a node set without a size")
        return shape
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DatasetDamaged(
            f"no network is described: {reason_of(error)}", where=f"{dataset.uri}/{NETWORK_FILE}",
            remedy="Remove this dataset, and its stage will make it again",
        ) from None  # fmt: skip
