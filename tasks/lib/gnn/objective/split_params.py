"""Parameters that define the learned labels and their split, shared by stages."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from superworkflow.infra.contract.params import StageParams


class SplitParams(StageParams):
    """Parameters of labels and their split into training, validation and test."""

    label: str = Field(
        default="",
        description="What is learned, as SET.FEATURE: numbers or texts of a node set; an empty text, nan, None, null "
        "and, of classes, a number below 0 mean no label. Not needed with an edge list. With "
        "`task` edge_classification or edge_regression it is of an edge set, or a column of the edge list, and numbers "
        "below 0 count.",
    )
    task: Literal["auto", "classification", "regression", "edge_classification", "edge_regression"] = Field(
        default="auto",
        description="What is learned, of nodes or edges. classification: each different label is a class. regression: "
        "labels are numbers, also below 0. auto: classes of nodes; labels with many different decimals are refused.",
    )
    train_share: float = Field(
        default=0.6, gt=0, le=1,
        description="Of the labelled nodes or edges of each class, the share to train on where no splits are given.",
    )  # fmt: skip
    validation_share: float = Field(
        default=0.2, ge=0, lt=1, description="The same to validate on; all others are tested."
    )
    split_by: str = Field(
        default="random",
        description="Of labelled edges: random, where all edges between two nodes are in one split; time, where the "
        "latest are tested and those before them validated on; or a column of the edge list, or feature of the edge "
        "set, with the splits train, validation and test, or with times or numbers by which they are ordered.",
    )
    seed: int = Field(default=42, ge=0, lt=2**63, description="Seed of all random numbers, 0 to 2**63 - 1.")

    @property
    def of_edges(self) -> bool:
        """True if what is learned is of edges."""
        return self.task in ("edge_classification", "edge_regression")

    @property
    def shares(self) -> tuple[float, float]:
        """Shares to train and to validate on."""
        return self.train_share, self.validation_share
