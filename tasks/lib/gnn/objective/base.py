"""Interface of training objectives: the targets of a step, its loss, and its validation.

Training iterates over the items of an objective, such as labelled nodes, in the order of their hash. For the items of a
step the objective makes an example, the sampler draws blocks around the example's nodes, and the objective computes the
loss from the rows that the network makes of these nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from superworkflow.infra.storage.dataset import FileWriter
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.gnn.model.config import Head
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.sampler.block import MiniBatch
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import NeighborSampler

Step = tuple[int, int, int]
"""Key of a step: its purpose (`random_streams.TRAINING`, `random_streams.VALIDATION`), epoch, step."""
RowsByNodeSet = Mapping[str, torch.Tensor]


class Example(NamedTuple):
    """Example of one step.

    Args:
        nodes: by node set, nodes whose rows the loss reads: int64, distinct, ascending.
        lost: by number of the edge set, positions of edges that pass no messages, ascending, distinct.
        wanted: targets of the loss, in a form of the objective's own.
        limits: by node set, a time for each node, after which edges pass no messages towards it, int64; `nodes` are
            then distinct, and ascending, with their limits. None for no limits.
    """

    nodes: Mapping[str, NDArray[np.int64]]
    lost: Mapping[int, NDArray[np.int64]]
    wanted: tuple[NDArray[Any], ...]
    limits: Mapping[str, NDArray[np.int64]] | None = None


class Evaluation(NamedTuple):
    """Sums over the items of an example: losses, and the objective's figure of merit."""

    loss: float
    figure: float


Gather = Callable[[torch.Tensor], torch.Tensor]
"""Function that concatenates all workers' tensors [n, width] by rank. Collective."""


def alone(rows: torch.Tensor) -> torch.Tensor:
    """The `Gather` of one process."""
    return rows


class Objective(Protocol):
    """Objective of training. Several threads make examples concurrently."""

    @property
    def head(self) -> Head:
        """Head that the network needs."""

    @property
    def figure(self) -> str:
        """Name of the figure of merit on the validation items; larger is better."""

    @property
    def is_constant(self) -> bool:
        """True if the same items make the same example in every step."""

    @property
    def doubts(self) -> Sequence[InputWarning]:
        """Warnings about the items."""

    def items(self, split: str) -> NDArray[np.int64]:
        """Numbers of the items of one of `splits.SPLITS`, ascending."""

    def most(self) -> int:
        """Maximum number of items of a step."""

    def home(self, items: NDArray[np.int64], step: Step) -> tuple[str, NDArray[np.int64]]:
        """A node set, and for each item the node whose owner trains on it."""

    def lost(self, items: NDArray[np.int64], step: Step) -> Mapping[int, NDArray[np.int64]]:
        """Edges that pass no messages in a step with these items; see `Example`."""

    def seed_times(self, items: NDArray[np.int64], step: Step) -> NDArray[np.int64] | None:
        """Time of each item, int64; None where seeds have none."""

    def example(self, items: NDArray[np.int64], step: Step) -> Example:
        """Example of a step: a function of its items and of the step alone."""

    def loss(self, network: Network, rows: RowsByNodeSet, example: Example) -> torch.Tensor:
        """Mean loss of the items, from the rows that the network made of the example's nodes."""

    def mass(self, example: Example) -> float:
        """Number by which the mean loss of an example counts among those of a step."""

    def judge(self, network: Network, rows: RowsByNodeSet, example: Example, gather: Gather = alone) -> Evaluation:
        """Evaluate rows, without gradients. An example may be empty if other workers have the step's items."""

    def save(self, output: FileWriter) -> None:
        """Write the files about the items that inference and evaluation need."""

    def facts(self) -> dict[str, Stat]:
        """Stats of the items, such as their number."""


def prepare(
    task: Objective, sampler: NeighborSampler, items: NDArray[np.int64], step: Step
) -> tuple[Example, MiniBatch]:
    """A step's example, and the blocks around it."""
    example = task.example(items, step)
    return example, sampler.batch(example.nodes, *step, lost=example.lost, limits=example.limits)
