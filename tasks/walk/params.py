"""Parameters of stage `walk`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.config import JsonDict

from superworkflow.infra.contract.params import StageParams

LEAST_BIAS, MOST_BIAS = 1e-6, 1e6
"""Limits of p and q: beyond them a walk does nothing else any more, and numbers of darts leave 64 bits."""


_PAPER_GRID: JsonDict = {"search": {"type": "categorical", "choices": [0.25, 0.5, 1.0, 2.0, 4.0]}}


def _labels(value: Any) -> Any:
    return tuple(str(label) for label in value) if isinstance(value, list | tuple) else value


class WalkParams(StageParams):
    """Parameters of the walks; names and defaults are those of the node2vec paper."""

    num_walks: int = Field(
        default=10, ge=1, description="Walks from each start vertex, at least 1.",
        json_schema_extra={"search": {"type": "int", "low": 5, "high": 20}},
    )  # fmt: skip
    walk_length: int = Field(
        default=80, ge=1, le=1_000_000, description="Vertices of a walk, its start included, 1 to 1,000,000.",
        json_schema_extra={"search": {"type": "int", "low": 20, "high": 120}},
    )  # fmt: skip
    p: float = Field(
        default=1.0, ge=LEAST_BIAS, le=MOST_BIAS, json_schema_extra=_PAPER_GRID,
        description="Return parameter, 1e-6 to 1e6: the weight of going straight back is multiplied by 1/p.",
    )  # fmt: skip
    q: float = Field(
        default=1.0, ge=LEAST_BIAS, le=MOST_BIAS, json_schema_extra=_PAPER_GRID,
        description="In-out parameter, 1e-6 to 1e6: the weight of leaving the neighbourhood is multiplied by 1/q.",
    )  # fmt: skip
    seed: int = Field(default=42, ge=0, lt=2**63, description="Seed of all random numbers, 0 to 2**63 - 1.")
    start_vertices: Annotated[tuple[str, ...], BeforeValidator(_labels)] | None = Field(
        default=None, min_length=1, description="Labels of the vertices to start from, at least one; all if not given."
    )
    weighted: bool | None = Field(
        default=None,
        description="Step in proportion to the edges' weights; if not given, whenever the graph has weights.",
    )
    spark_mode: Literal["auto", "replicated", "partitioned"] = Field(
        default="auto",
        description="On Spark and Dask: replicated gives each member the whole graph, partitioned a part of it between "
        "which walks travel; auto takes the first while the graph fits a member's memory. The walks are the same.",
        json_schema_extra={"affects_result": False},
    )
