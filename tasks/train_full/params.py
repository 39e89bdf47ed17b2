"""Parameters of stage `train_full`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from superworkflow.tasks.lib.gnn.objective.split_params import SplitParams
from superworkflow.tasks.train.defaults import AUTO, FEW_ITEMS
from superworkflow.tasks.train.params import ConcreteTrainParams, TrainParams

SYNC: Literal["sync"] = "sync"
BY_INTERVAL = "interval"
REAL: Literal["real"] = "real"
NOMINAL_RATES: Literal["nominal"] = "nominal"
GRAPH, PARAMETER, TENSOR = "graph", "parameter", "tensor"
"""Roles: graph servers, without any of which the stage's own process is one; those who update the weights for them,
without any of which graph servers do; those who execute `AV` for graph servers."""
_USUAL: dict[str, dict[str, Any]] = {
    "gcn": {"hidden": 64, "dropout": 0.5, "learning_rate": 0.01, "epochs": 200, "patience": 0, "kept_by": "loss"},
    "gat": {"hidden": 64, "dropout": 0.6, "learning_rate": 0.005, "epochs": 1000, "patience": 100, "kept_by": "both"},
}
"""Values of `auto`, as published, for few labels."""
_MANY: dict[str, Any] = {"dropout": 0.2, "learning_rate": 0.03, "epochs": 1000, "patience": 50, "kept_by": "loss"}
"""Those for more than `FEW_ITEMS` labels, which the published course ends too early for: trained on 38,000 packages of
Debian, GCN reaches 0.767 instead of 0.697 (docs/measurements/full-graph.md)."""
COPIED_INPUTS = 1 << 30
"""Most bytes of the first layer's rows that are copied into the order of the intervals."""


class TrainFullParams(SplitParams):
    """Parameters of training on the whole graph."""

    model: Literal["gcn", "gat"] = Field(
        default="gcn",
        description="gcn or gat, as published.",
        json_schema_extra={"search": {"type": "categorical", "choices": ["gcn", "gat"]}},
    )
    hidden: Annotated[int, Field(ge=2, le=2048)] | Literal["auto"] = Field(
        default=AUTO, description="Width of hidden layers, of gat of all heads together, 2 to 2048. auto: 64.",
        json_schema_extra={"search": {"type": "categorical", "choices": [16, 64, 128]}},
    )  # fmt: skip
    layers: int = Field(default=2, ge=1, le=8, description="Layers, 1 to 8.")
    heads: int = Field(
        default=8, ge=1, le=16, description="Heads of gat's hidden layers, 1 to 16; divide `hidden`. The last layer "
        "has one.",
    )  # fmt: skip
    dropout: Annotated[float, Field(ge=0, le=0.95)] | Literal["auto"] = Field(
        default=AUTO,
        description="Share of entries dropped of what each layer reads, of gcn's first one after its gather, and of "
        "attention, 0 to 0.95. auto: 0.5 of gcn, 0.6 of gat, 0.2 with more than 5000 labelled nodes, 0 of numbers.",
        json_schema_extra={"search": {"type": "float", "low": 0.0, "high": 0.8}},
    )
    epochs: Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] = Field(
        default=AUTO, description="Most passes over the graph, 1 to 100,000. auto: 200 of gcn, 1000 "
        "of gat and with more than 5000 labelled nodes.",
    )  # fmt: skip
    patience: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        default=AUTO,
        description="Epochs without a better one after which training ends; 0: it never ends early. auto: 0 of gcn, "
        "100 of gat, 50 with more than 5000 labelled nodes.",
    )
    kept_by: Literal["loss", "figure", "both", "auto"] = Field(
        default=AUTO,
        description="Which epoch's weights are kept, as `train.kept_by` says. auto: loss of gcn, both of gat, loss "
        "with more than 5000 labelled nodes.",
    )
    learning_rate: Annotated[float, Field(gt=0, le=10)] | Literal["auto"] = Field(
        default=AUTO,
        description="Learning rate of Adam, greater than 0, at most 10. auto: 0.01 of gcn, 0.005 of gat, 0.03 "
        "with more than 5000 labelled nodes.",
        json_schema_extra={"search": {"type": "float", "low": 0.001, "high": 0.05, "log": True}},
    )
    weight_decay: Annotated[float, Field(ge=0, le=1)] | Literal["auto"] = Field(
        default=AUTO,
        description="L2 penalty of the weights, 0 to 1. auto: 0.0005 for at most 5000 labelled nodes, else 0.",
        json_schema_extra={"search": {"type": "float", "low": 1e-6, "high": 1e-2, "log": True}},
    )
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="Precision of the rows that intervals publish, and of the factors of products of dense rows: "
        "float32, or bfloat16, half the bytes; sums are float32.",
    )
    intervals: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = Field(
        default=AUTO,
        description="Intervals of vertices, of which tasks are made, 1 to 64; more threads than these find no work. "
        "auto: one for 2048 vertices, 2 to 16; along parts the next power of two.",
    )
    staleness: Annotated[int, Field(ge=0, le=16)] | Literal["sync"] = Field(
        default=SYNC,
        description="sync: every gather waits for its neighbours, and results do not depend on threads. 0: a "
        "neighbour's last value serves, all intervals within one epoch. 1 to 16: an interval may also be this "
        "number of epochs ahead of the slowest.",
    )
    updates: Literal["epoch", "interval"] = Field(
        default="epoch",
        description="epoch: one update of the weights at the end of an epoch, by the sum of all gradients. interval: "
        "one by the gradients of each interval, in their order.",
    )
    clock: Literal["real", "virtual"] = Field(
        default=REAL,
        description="real: tasks run on the threads of the stage. virtual: one by one, in the order that simulated "
        "threads would have, so that asynchronous runs repeat; times of tasks are simulated then.",
    )
    fusion: bool = Field(
        default=True,
        description="Products that follow each other without a gather, those of gcn's first two layers, are one call "
        "of a tensor worker, forwards as backwards. No bit of the result depends on it.",
    )
    streaming: bool = Field(
        default=True,
        description="A tensor worker gets the rows of its next call while it executes one, where both fit into its "
        "memory. No bit of the result depends on it.",
    )
    virtual_threads: int = Field(default=4, ge=1, le=64, description="Threads of the virtual clock, 1 to 64.")
    virtual_servers: int = Field(
        default=1, ge=1, le=64, description="Graph servers of the virtual clock, 1 to 64, each with these threads.",
    )  # fmt: skip
    virtual_parameter_servers: int = Field(
        default=0, ge=0, le=64, description="Parameter servers of the virtual clock, 0 to 64, with such threads and "
        "links too; 0: graph servers update the weights.",
    )  # fmt: skip
    virtual_gbps: float = Field(
        default=10.0, gt=0, le=10_000, description="Gbit a second that each server of the virtual clock can send.",
    )  # fmt: skip
    virtual_rates: Literal["nominal", "measured"] = Field(
        default=NOMINAL_RATES,
        description="Rates of the virtual clock's tasks. nominal: those of one kind of processor, the same anywhere. "
        "measured: those of this machine, once; asynchronous runs then repeat on this machine alone.",
    )
    virtual_tensor_workers: int = Field(
        default=0, ge=0, le=1024, description="Tensor workers of the virtual clock, of all servers, 0 to 1024.",
    )  # fmt: skip
    virtual_tensor_gbps: float = Field(
        default=0.2, gt=0, le=10_000, description="Gbit a second of each one's link, each way.",
    )  # fmt: skip
    target_accuracy: float = Field(
        default=0.0, ge=0, le=1, description="Validation accuracy at which training ends, 0 to 1; 0: it does not.",
    )  # fmt: skip
    switch_accuracy: float = Field(
        default=0.0, ge=0, le=1,
        description="Validation accuracy from which epochs are synchronous, 0 to 1; 0: they stay as they are.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _fit(self) -> TrainFullParams:
        if self.of_edges:
            raise ValueError("labels of edges are learned in mini-batches: use the superworkflow gnn")
        if self.model == "gat" and self.width % self.heads:
            raise ValueError(f"{self.heads} heads do not divide a hidden width of {self.width}")
        if self.train_share + self.validation_share > 1:
            raise ValueError("train_share and validation_share are more than 1 together")
        return self

    @property
    def width(self) -> int:
        """Width of hidden layers."""
        return int(_USUAL[self.model]["hidden"]) if self.hidden == AUTO else int(self.hidden)

    def intervals_of(self, vertices: int, along_parts: bool = False) -> int:
        """Intervals of a graph; along parts, whose number is a power of two, theirs is one unless it is given."""
        if self.intervals != AUTO:
            return int(self.intervals)
        usual = min(16, max(2, vertices // 2048))
        return 1 << (usual - 1).bit_length() if along_parts else usual

    @property
    def most_epochs(self) -> int:
        """Most epochs, whatever the number of labels."""
        return max(self.concrete(items).epochs for items in (1, FEW_ITEMS + 1))

    def concrete(self, items: int) -> ConcreteTrainParams:
        """The same network and course of training in terms of stage train, with a value in place of each `auto`.

        Args:
            items: number of nodes to train on.
        """
        named = ("label", "task", "train_share", "validation_share", "split_by", "seed", "model", "layers", "heads")
        usual = _USUAL[self.model] | (_MANY if items > FEW_ITEMS else {})
        chosen = {name: value for name, value in usual.items() if getattr(self, name) == AUTO}
        if self.task == "regression" and self.dropout == AUTO:
            chosen["dropout"] = 0.0
        given = {
            name: getattr(self, name)
            for name in (*named, "epochs", "patience", "kept_by", "learning_rate", "weight_decay", "dropout")
        }
        everything = ",".join(["all"] * self.layers)
        whole = TrainParams.model_validate(
            given | chosen | {"hidden": self.width, "fanouts": everything, "batch": "all", "edge_features": "none"}
        )
        return whole.concrete(False, items, items, False)
