"""Parameters of stage `sample`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from superworkflow.infra.contract.params import StageParams

MOST_REPEATS = 1000


def _shares(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class SampleParams(StageParams):
    """Parameters of sampling; sizes and strategies are the spec's."""

    aggregation: Literal["edge", "node"] = Field(
        default="edge",
        description="edge: a subgraph has the edges that were sampled; node: all edges between its nodes.",
    )
    inputs: Literal["once", "path"] = Field(
        default="once",
        description="once: an op draws for each node that its inputs lead to; path: again for each way there.",
    )
    repeats: int = Field(default=1, ge=1, le=MOST_REPEATS, description="Subgraphs of each seed, 1 to 1000.")
    size_factor: float = Field(
        default=1.0, ge=0.25, le=4.0, description="Times the spec's sample sizes, 0.25 to 4.",
        json_schema_extra={"search": {"type": "float", "low": 0.25, "high": 4.0, "log": True}},
    )  # fmt: skip
    sizes: Mapping[str, Annotated[int, Field(ge=1, lt=2**31)]] = Field(
        default={}, description="Sample sizes of some ops by their names, at least 1, in place of the spec's."
    )
    fractions: Annotated[tuple[float, ...], BeforeValidator(_shares)] = Field(
        default=(0.8, 0.1, 0.1), min_length=3, max_length=3,
        description="Shares of train, validation and test, sum 1, where neither seeds nor their features have a split.",
    )  # fmt: skip
    seed: int = Field(default=42, ge=0, lt=2**63, description="Seed of all random numbers, 0 to 2**63 - 1.")
    spark_mode: Literal["auto", "replicated", "partitioned"] = Field(
        default="auto",
        description="On Spark and Dask: replicated gives each member the rows of the whole graph, partitioned a part "
        "of them in which it draws for all; auto takes the first while the rows fit its memory. The subgraphs are the "
        "same.",
        json_schema_extra={"affects_result": False},
    )

    @model_validator(mode="after")
    def _sum_is_one(self) -> SampleParams:
        if min(self.fractions) < 0 or abs(sum(self.fractions) - 1) > 1e-9:
            raise ValueError("fractions are three shares of at least 0 with sum 1")
        return self
