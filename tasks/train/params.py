"""Parameters of stage `train`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from superworkflow.tasks.lib.gnn.model.config import ATTENTION, reads_means
from superworkflow.tasks.lib.gnn.objective.split_params import SplitParams
from superworkflow.tasks.train.defaults import (
    AUTO,
    FEW_TRIPLES,
    FEW_TRIPLES_WIDTH,
    NEGATIVES,
    TRIPLE_NEGATIVES,
    WIDTH,
    schedule,
)
from superworkflow.tasks.train.own_file import MOST_CODE, with_code

ALL = "all"
MOST_FANOUT = 1 << 20


class TrainParams(SplitParams):
    """Parameters of training."""

    model: str = Field(
        default="sage",
        description="sage, rgcn and rgat take any graph; gcn, gat, gatv2 and gin one of one node set and one edge set. "
        "Or a module of one's own, FILE.py:CLASS.",
        json_schema_extra={"search": {"type": "categorical", "choices": ["sage", "gcn", "gat"]}},
    )
    code: str = Field(
        default="", max_length=MOST_CODE, description="Text of the file of one's own module; read from what `model` "
        "names.",
    )  # fmt: skip
    aggregator: Literal["mean", "pool"] = Field(
        default="mean", description="What sage makes of neighbours: their mean, or pool, the largest of each column."
    )
    layers: int = Field(default=2, ge=1, le=8, description="Layers, 1 to 8.")
    fanouts: str = Field(
        default="10,all",
        description="Neighbours that are drawn in each hop, from the targets outwards, as many as layers: numbers from "
        "1, or all, with commas between them.",
        json_schema_extra={
            "search": {"type": "categorical", "choices": ["5,all", "10,all", "25,all"], "by_default": False}
        },
    )
    sampler: Literal["neighbor", "labor", "latest", "subgraphs"] = Field(
        default="neighbor",
        description="neighbor: as many of each node as the fan-out says. labor: that number on average, by one random "
        "number for each sender, so that a batch has fewer different nodes (Balin and Çatalyürek, 2023). latest: the "
        "edges of the largest `time`, of equal ones the later row; edge sets without it as neighbor does. subgraphs: "
        "those of the input `subgraphs`, around each seed its own; `fanouts` are not read (in process).",
    )
    time: str = Field(
        default="timestamp",
        description="Feature of edges that is their time, for the sampler latest and for `seed_time`, one whole number "
        "each; `timestamp` with an edge list whose `heterograph.time` is set.",
    )
    seed_time: str = Field(
        default="",
        description="Feature of the labelled nodes that is the time of each, `time` with a column of times in the file "
        "of labels; of links the name of `time`. Edges of a later `time` pass no messages towards a node or link, in "
        "any hop, in training and wherever it is predicted. Empty: all edges do.",
    )
    weight: str = Field(
        default="",
        description="Feature of edges that is their weight, `weight` with an edge list; empty: edges count the same. "
        "Edge sets without it do.",
    )
    weighted: Literal["sums", "draws"] = Field(
        default="sums",
        description="What `weight` is for. sums: messages are multiplied by it; means still divide by how many there "
        "are, and gcn's degrees are sums of weights. draws: neighbours are drawn in proportion to it, without "
        "replacement, and count the same.",
    )
    edge_features: str = Field(
        default="auto",
        description="Features of edges that layers of gat, gatv2, gin and rgat read, with commas between them; none. "
        "auto: all numbers but single whole ones, `weight` and `time`. Other models do not read them.",
    )
    edge_scaling: Literal["auto", "none", "row", "standard", "quantile"] = Field(
        default="auto", description="Scaling of the features of edges, as `heterograph.scaling` is of those of nodes."
    )
    hidden: Annotated[int, Field(ge=2, le=2048)] | Literal["auto"] = Field(
        default=AUTO,
        description="Width of hidden layers and of learned embeddings, 2 to 2048. auto: 256; of at most 100,000 "
        "links of all relations 64.",
        json_schema_extra={"search": {"type": "categorical", "choices": [16, 64, 256]}},
    )  # fmt: skip
    norm: Literal["none", "layer", "batch"] = Field(
        default="none",
        description="Normalization of hidden layers' outputs, before the activation. layer: each node's row. batch: "
        "each column over the rows of the step, on workers over those of all.",
        json_schema_extra={
            "search": {"type": "categorical", "choices": ["none", "layer", "batch"], "by_default": False}
        },
    )
    residual: Literal["auto"] | bool = Field(
        default=AUTO,
        description="Hidden layers add their input to their output, by a matrix where widths differ. auto: for links "
        "of all relations, with two layers or more.",
        json_schema_extra={"search": {"type": "categorical", "choices": [False, True], "by_default": False}},
    )
    jumping_knowledge: Literal["auto", "none", "last", "cat", "max"] = Field(
        default=AUTO,
        description="A linear head on the outputs of layers that are all hidden: of the last, of all concatenated, "
        "or the largest of each column. none: the last layer makes the output itself. auto: last where "
        "`residual` is auto and chosen, else none.",
        json_schema_extra={
            "search": {"type": "categorical", "choices": ["none", "last", "cat", "max"], "by_default": False}
        },
    )
    heads: int = Field(
        default=8,
        ge=1,
        le=64,
        description="Heads of the hidden layers of gat, gatv2 and rgat, 1 to 64; divide `hidden`.",
    )
    bases: int = Field(
        default=0, ge=0, le=256, description="Matrices of which rgcn's are sums, 0 to 256; 0: one for each edge set."
    )
    batch: int | Literal["all"] = Field(
        default=1024, description="Targets of a step, 1 to 1048576, or all.",
        json_schema_extra={"search": {"type": "categorical", "choices": [256, 1024, 4096], "by_default": False}},
    )  # fmt: skip
    epochs: Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] = Field(
        default=AUTO,
        description="Most passes over the training nodes or links, 1 to 100,000. auto: of nodes 200, and fewer, at "
        "least 10, if these are more than 6000 steps; of links about 400 steps, 10 to 60 passes; of all "
        "relations 1200, 10 to 120.",
    )
    patience: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        default=AUTO,
        description="Epochs without a better one after which training ends; 0: it never ends early. auto: of nodes a "
        "quarter of the usual `epochs`, at least 5; of links 250 steps, at least 8; of all relations 20.",
    )
    kept_by: Literal["loss", "figure", "both", "auto"] = Field(
        default=AUTO,
        description="Which epoch's weights are kept, by what is validated on. loss: that of the lowest loss. figure: "
        "that of the best accuracy, R-precision, AUC of links or MRR of triples; of several the one of lowest "
        "loss. both: the last one that no earlier one surpassed in either; `patience` then counts epochs "
        "surpassed in both. auto: of nodes loss, of links figure.",
    )
    learning_rate: Annotated[float, Field(gt=0, le=10)] | Literal["auto"] = Field(
        default=AUTO,
        description="Learning rate of Adam, greater than 0, at most 10. auto: 0.01; of links of one relation 0.003.",
        json_schema_extra={"search": {"type": "float", "low": 0.001, "high": 0.05, "log": True}},
    )  # fmt: skip
    weight_decay: Annotated[float, Field(ge=0, le=1)] | Literal["auto"] = Field(
        default=AUTO,
        description="L2 penalty of the dense weights, 0 to 1. auto: 0.0005 for at most 5000 labelled nodes, else 0.",
        json_schema_extra={"search": {"type": "float", "low": 1e-6, "high": 1e-2, "log": True}},
    )
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = Field(
        default="constant",
        description="Course of the learning rate after the warm-up: constant, or falling to 0 at the last step of "
        "`epochs`, linear or as half a cosine.",
    )
    warmup_steps: Annotated[int, Field(ge=0, le=1_000_000)] | Literal["auto"] = Field(
        default=AUTO,
        description="Steps in which the learning rate rises to its value, 0 to 1,000,000; 0: it begins with it. auto: "
        "of links of all relations 200, of fewer than 1200 steps a sixth; else 0.",
    )
    clip_norm: float = Field(
        default=0.0, ge=0, description="Largest norm of all gradients of a step together, which larger ones are scaled "
        "to; 0: any.",
    )  # fmt: skip
    class_weights: Literal["none", "balanced"] = Field(
        default="none",
        description="What a training node counts in the loss. none: all the same. balanced: in inverse proportion to "
        "the training nodes of its class.",
    )
    label_smoothing: float = Field(
        default=0.0, ge=0, lt=1,
        description="Of classes: share of the target that is spread evenly over all classes, 0 to less than 1.",
    )  # fmt: skip
    embeddings_by: Literal["adam", "adagrad"] = Field(
        default="adam", description="What trains embeddings of nodes without features: adam, in its sparse form, or "
        "adagrad.",
    )  # fmt: skip
    dropout: Annotated[float, Field(ge=0, le=0.95)] | Literal["auto"] = Field(
        default=AUTO,
        description="Share of entries dropped of what each layer reads, and of attention, 0 to 0.95; sage and rgcn "
        "also drop whole own embeddings. auto: 0.5; of numbers 0, of links 0.3 with features and 0 without, of at "
        "most 100,000 links of all relations 0.3.",
        json_schema_extra={"search": {"type": "float", "low": 0.0, "high": 0.8}},
    )  # fmt: skip
    decoder: Literal["auto", "dot", "distmult", "complex"] = Field(
        default=AUTO,
        description="Of links: the product of both ends' vectors, distmult, each column by a factor, or complex, which "
        "distinguishes a link from its reverse; of all relations with factors of each. auto: complex where links "
        "have a direction, else distmult.",
        json_schema_extra={"search": {"type": "categorical", "choices": ["dot", "distmult"], "by_default": False}},
    )  # fmt: skip
    negatives: Annotated[int, Field(ge=1, le=256)] | Literal["auto"] = Field(
        default=AUTO, description="Of links: pairs without one for each, 1 to 256. More rank a link better among many; "
        "they cost little with `negatives_by` pairs, as the links of a step share their nodes. auto: 16, of all "
        "relations 64, with another `negatives_by` or `seed_time` 1.",
    )  # fmt: skip
    negatives_by: Literal["pairs", "uniform", "degree"] = Field(
        default="pairs",
        description="Of links: what such pairs are. pairs: any two nodes, as those of stage holdout_links. uniform, "
        "degree: links with one end replaced, by any node or in proportion to degrees, for ranking the targets of a "
        "node.",
    )
    device: Literal["cpu", "cuda"] = Field(default="cpu", description="Where to train: cpu or cuda.")
    products: Literal["float32", "bfloat16"] = Field(
        default="float32", description="Factors of matrix products of sage and rgcn: float32, or bfloat16, which is "
        "faster on processors that have it, and less exact; sums are float32.",
    )  # fmt: skip
    lookahead: int = Field(
        default=4, ge=0, le=64,
        description="Batches that are prepared ahead, 0 to 64; with 0 the thread that trains prepares them.",
        json_schema_extra={"affects_result": False},
    )  # fmt: skip

    @model_validator(mode="before")
    @classmethod
    def _with_code(cls, given: Any) -> Any:
        return with_code(given) if isinstance(given, dict) else given

    @field_validator("fanouts", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return ",".join(map(str, value))
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("fanouts")
    @classmethod
    def _plain(cls, value: str) -> str:
        words = [word.strip() for word in value.split(",")]
        for word in words:
            fits = word == ALL or (word.isascii() and word.isdecimal() and 1 <= int(word) <= MOST_FANOUT)
            if not fits:
                raise ValueError(f"{word!r} is no fan-out")
        return ",".join(words)

    @field_validator("batch")
    @classmethod
    def _in_range(cls, value: int | str) -> int | str:
        if isinstance(value, int) and not 1 <= value <= 1 << 20:
            raise ValueError("must be 1 to 1048576, or all")
        return value

    @model_validator(mode="after")
    def _fit(self) -> TrainParams:
        if len(self.sizes) != self.layers:
            raise ValueError(
                f"{len(self.sizes)} fan-outs ({self.fanouts}) for {self.layers} layers: give `fanouts` one for each"
            )
        between = {"norm": self.norm != "none", "residual": self.residual is True,
                   "jumping_knowledge": self.jumping_knowledge not in ("none", AUTO)}  # fmt: skip
        names = " and ".join(name for name, given in between.items() if given)
        if self.layers == 1 and names:
            raise ValueError(
                f"{names} act between layers, and there is one: set `layers` to 2 or more, or leave them out"
            )
        if self.code and names:
            raise ValueError(f"a module of one's own has no {names}: leave them out, and write them in it")
        if self.model in ATTENTION and (width := self.width()) % self.heads:
            raise ValueError(f"{self.heads} heads do not divide a hidden width of {width}")
        if self.weight and self.weighted == "sums" and self.model in ATTENTION:
            raise ValueError(f"{self.model} learns what an edge counts: leave `weight` out, or set `weighted` to draws")
        if self.weight and self.weighted == "draws" and self.sampler == "labor":
            raise ValueError("labor draws by one number for each sender, not by weight: set `sampler` to neighbor")
        if self.weight and self.weighted == "draws" and self.sampler == "latest":
            raise ValueError("latest takes edges by time, not by weight: set `sampler` to neighbor")
        if self.sampler == "subgraphs" and (self.model == "gcn" or self.seed_time):
            name = "gcn, which reads degrees of the whole graph," if self.model == "gcn" else "seed_time"
            raise ValueError(f"{name} does not go with the sampler subgraphs: set another one, or leave it out")
        if self.seed_time:
            faults = {"labor": self.sampler == "labor", "gcn": self.model == "gcn", "weighted=draws": bool(
                self.weight and self.weighted == "draws")}  # fmt: skip
            if unfit := [name for name, given in faults.items() if given]:
                raise ValueError(f"seed_time does not go with {unfit[0]}: set another value, or leave seed_time out")
        if self.train_share + self.validation_share > 1:
            raise ValueError("train_share and validation_share are more than 1 together")
        return self

    def width(self, triples: int = 0) -> int:
        """Value of `hidden`, for this number of links of all relations or, if it is 0, for another task."""
        usual = FEW_TRIPLES_WIDTH if 0 < triples <= FEW_TRIPLES else WIDTH
        return usual if self.hidden == AUTO else int(self.hidden)

    @property
    def in_tiles(self) -> bool:
        """True if the links of a step share the nodes of pairs without a link; see `objective.link_prediction`."""
        return self.negatives_by == "pairs" and not self.seed_time

    def pairs(self, relations: bool = False) -> int:
        """Value of `negatives`, for links of all relations or of one."""
        usual = TRIPLE_NEGATIVES if relations else NEGATIVES if self.in_tiles else 1
        return usual if self.negatives == AUTO else int(self.negatives)

    def connections(self, relations: bool) -> tuple[bool, str]:
        """Values of `residual` and `jumping_knowledge`, for links of all relations or another task: there the rows of
        nodes, which have edges of most relations, must differ by more than their neighbours' means."""
        chosen = self.residual == AUTO and relations and self.layers > 1 and not self.code
        joining = ("last" if chosen else "none") if self.jumping_knowledge == AUTO else self.jumping_knowledge
        return chosen or self.residual is True, joining

    def concrete(
        self, links: bool, items: int, most: int, learned: bool, relations: bool = False
    ) -> ConcreteTrainParams:
        """Parameters with a value in place of each `auto`.

        Args:
            links: the task is link prediction.
            items: number of nodes or links to train on.
            most: number of them that a step may have.
            learned: the network learns embeddings of nodes without features.
            relations: the links are of all relations.
        """
        batch = most if self.batch == ALL else min(int(self.batch), most)
        usual = schedule(links, items, batch, learned, self.task == "regression", relations)._asdict()
        usual["hidden"] = self.width(items if relations else 0)
        chosen = {name: value for name, value in usual.items() if getattr(self, name) == AUTO}
        return ConcreteTrainParams.model_validate(self.model_dump() | chosen)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Fan-outs from the targets outwards; -1 for all."""
        return tuple(-1 if word == ALL else int(word) for word in self.fanouts.split(","))

    @property
    def sums_weights(self) -> bool:
        """True if messages are multiplied by weights of edges."""
        return bool(self.weight) and self.weighted == "sums"

    @property
    def sums_features(self) -> bool:
        """True if the first layer reads means of neighbours' features, which no step changes."""
        every = self.sizes[-1] < 0 and not self.seed_time and self.sampler != "subgraphs"
        return reads_means(self.model, self.aggregator) and not self.sums_weights and every


class ConcreteTrainParams(TrainParams):
    """Parameters whose values are chosen; see `TrainParams.concrete`."""

    hidden: int
    epochs: int
    patience: int
    kept_by: Literal["loss", "figure", "both"]
    learning_rate: float
    weight_decay: float
    dropout: float
    warmup_steps: int
