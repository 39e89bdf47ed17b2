"""Stage `embed`: walks → one vector per vertex, by skip-gram with negative sampling.

File of the dataset: `embeddings.parquet` with the columns `node` (the label as the user wrote it) and `vector`
(fixed-size list of float32), in the order of vertex ids, only the vertices that `prepare` kept.

Two kernels minimize the same objective (see `tasks.embed.kernel`): `numba`, for processors, and `torch`, for CUDA
devices. The same parameters give the same vectors, bit by bit, with one thread of the `numba` kernel; several threads
write to the shared tables without a lock (Niu et al., 2011), and their vectors differ in detail but not in quality.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Resources, Stage, StageParams, Stats


class EmbedParams(StageParams):
    """Parameters of skip-gram training."""

    retired: ClassVar[Mapping[str, Any]] = {"partitions": 1}

    dimensions: int = Field(
        default=128, ge=2, le=4096, description="Length of a vector, 2 to 4096.",
        json_schema_extra={"search": {"type": "int", "low": 32, "high": 256, "log": True}},
    )  # fmt: skip
    window: int = Field(
        default=10, ge=1, le=1000,
        description="Largest distance between a centre and its context, 1 to 1000; a pair at distance d weighs "
        "(window - d + 1) / window, as it does on average over word2vec's random windows.",
        json_schema_extra={"search": {"type": "int", "low": 2, "high": 20}},
    )  # fmt: skip
    negative: int = Field(
        default=5, ge=1, le=100, description="Effective number of negatives per positive pair, 1 to 100.",
        json_schema_extra={"search": {"type": "int", "low": 2, "high": 15}},
    )  # fmt: skip
    epochs: int = Field(
        default=1, ge=1, le=10_000, description="Passes over all walks, 1 to 10,000.",
        json_schema_extra={"search": {"type": "int", "low": 1, "high": 5}},
    )  # fmt: skip
    learning_rate: float = Field(
        default=0.07, gt=0, le=100,
        description="Learning rate at the start, greater than 0, at most 100; it falls linearly to 1/500 of that.",
        json_schema_extra={"search": {"type": "float", "low": 0.01, "high": 0.2, "log": True}},
    )  # fmt: skip
    optimizer: Literal["sgd", "adagrad"] = Field(
        default="sgd",
        description="sgd, or adagrad: the rate of a row divided by the root of its sum of mean squared gradients "
        "(with adagrad, start at a learning rate near 0.5).",
        json_schema_extra={"search": {"type": "categorical", "choices": ["sgd", "adagrad"]}},
    )  # fmt: skip
    step_bound: float = Field(
        default=0.25, ge=0, le=10,
        description="Damping b of a row's step, lr / (1 + b lr h) with h the bound of its curvature, 0 (none) to 10. "
        "From 0.5 on no step can overshoot along its row, and the torch kernel uses no less; for single walks 0.25 has "
        "been enough and learns faster.",
        json_schema_extra={"search": {"type": "float", "low": 0.1, "high": 1.0, "log": True, "by_default": False}},
    )  # fmt: skip
    shared_negatives: int = Field(
        default=64, ge=8, le=4096, multiple_of=4,
        description="Negatives that the positions of a block share, a multiple of 4, 8 to 4096; short walks draw "
        "fewer. More are slower and better.",
        json_schema_extra={"search": {"type": "categorical", "choices": [32, 64, 128], "by_default": False}},
    )  # fmt: skip
    block: int = Field(
        default=128, ge=4, le=4096, description="Positions of a walk that the numba kernel trains together, 4 to 4096."
    )
    batch: int = Field(default=64, ge=1, le=1 << 20, description="Walks that the torch kernel trains together.")
    device: Literal["cpu", "cuda"] = Field(default="cpu", description="Where to train: cpu or cuda.")
    kernel: Literal["auto", "numba", "torch"] = Field(
        default="auto", description="numba (cpu only), torch, or auto: numba on cpu, torch on cuda."
    )
    products: Literal["float32", "tf32", "bfloat16"] = Field(
        default="bfloat16",
        description="What the factors of matrix products are rounded to: bfloat16, the only one of the numba kernel; "
        "on cuda also tf32 or float32. Tables and sums are always float32; torch on cpu does not round.",
    )
    seed: int = Field(default=42, ge=0, lt=2**63, description="Seed of all random numbers, 0 to 2**63 - 1.")

    @property
    def engine(self) -> str:
        """The kernel that `auto` stands for, or the one that was chosen."""
        if self.kernel != "auto":
            return self.kernel
        return "torch" if self.device == "cuda" else "numba"


_PROCESS_BYTES = 206 << 20
"""Resident set of the interpreter with NumPy, Arrow and the compiled kernel, before a table is made."""
_TORCH_BYTES = 300 << 20
_START_S = 0.6
_SHARD_BYTES = 32 << 20


def estimate(params: EmbedParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Memory by counting the tables; time by what one 4 GHz core of 2025 with AVX-512 BF16 needed."""
    vocabulary, walks = inputs.get("vocabulary", {}), inputs["walks"]
    vertices = int(walks["vertices"] or 0)
    rows = int(vocabulary.get("rows") or vertices)
    tokens = int(walks["tokens"] or 0)
    per_row = 8 * params.dimensions + 8 + (8 if params.optimizer == "adagrad" else 0)
    memory = _PROCESS_BYTES + rows * per_row + 4 * vertices + min(2 * _SHARD_BYTES, 4 * tokens)
    if params.engine == "torch":
        memory += _TORCH_BYTES
    pairs = 2 * params.window + params.shared_negatives
    stride = -(-params.dimensions // 16) * 16
    token_ns = 60 + stride * (0.014 * pairs + (1.7 if rows * per_row > 64 << 20 else 0.8))
    training_s = 1e-9 * tokens * params.epochs * token_ns * (4 if params.engine == "torch" else 1)
    writing_s = 1e-9 * rows * params.dimensions * 4 * 3
    work_s = training_s + writing_s
    return Estimate(
        memory_bytes=memory,
        cpu_s=_START_S + work_s,
        output_bytes=rows * (4 * params.dimensions + 12),
        stats={"rows": rows, "dimensions": params.dimensions, "vertices": vertices},
        parallel=training_s / max(work_s, 1e-9),
        start_s=_START_S,
        base_bytes=_PROCESS_BYTES + (_TORCH_BYTES if params.engine == "torch" else 0),
        kind=params.engine,
    )


STAGE = Stage(
    name="embed",
    version="4",
    params=EmbedParams,
    inputs={
        "graph": Input("index dataset: the labels"),
        "walks": Input("walk dataset: the walks to train on"),
        "vocabulary": Input("prepare dataset: rows and distributions"),
        "initial": Input("embeddings to start from, matched by label", optional=True),
    },
    run="superworkflow.tasks.embed.run:run",
    check="superworkflow.tasks.embed.device:check_device",
    estimate=estimate,
    image="torch",
    help="Skip-gram with negative sampling",
    late=("superworkflow.tasks.embed.kernel",),
    steps=lambda params: params.epochs,
)
