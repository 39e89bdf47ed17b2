"""Other defaults of the index stage, for edge lists whose columns are two sets of nodes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from superworkflow.tasks.index import IndexParams

_FIELDS = IndexParams.model_fields


class TwoSetsParams(IndexParams):
    """Parameters of the index stage for two sets of nodes."""

    bipartite: Literal["auto"] | bool = Field(default=True, description=_FIELDS["bipartite"].description)


class RatingsParams(TwoSetsParams):
    """Parameters of the index stage for ratings: each row has one, of either sign, and no user rates an item twice."""

    weighted: Literal[True] = Field(
        default=True, description="Each row has a rating, in the column `weight`, or by default in one named rating, "
        "score or stars, else in the first of numbers that are no times.",
    )  # fmt: skip
    duplicates: Literal["sum", "max", "min", "error"] = Field(
        default="error", description=_FIELDS["duplicates"].description
    )
    negative: Literal["error", "drop", "absolute", "keep"] = Field(
        default="keep", description=_FIELDS["negative"].description
    )
