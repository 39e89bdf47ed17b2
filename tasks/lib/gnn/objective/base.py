"""Training objective behind one interface: the targets of a step, its loss, and its validation.

Training goes through the items of a task, such as labelled nodes, in the order of their hash, so many of them in a
step. It asks the task for the example that a step learns from, has blocks drawn around the example's nodes, and gives
the task the rows that the network makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from superworkflow.infra.storage.dataset import FileWriter
from superworkflow.infra.storage.manifest import Stat
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
        nodes: by node set those whose rows the loss reads: int64, distinct, ascending.
        lost: by the number of the edge set, positions of edges that pass no messages, ascending, distinct.
        wanted: what the task's loss compares them with; each task knows its own.
    """

    nodes: Mapping[str, NDArray[np.int64]]
    lost: Mapping[int, NDArray[np.int64]]
    wanted: tuple[NDArray[Any], ...]


class Evaluation(NamedTuple):
    """Sums over the items of an example: of their losses, and of the figure by which the task is judged."""

    loss: float
    figure: float


Gather = Callable[[torch.Tensor], torch.Tensor]
"""Makes one tensor of those [n, width] that all workers have, by rank; all of them call it."""


def alone(rows: torch.Tensor) -> torch.Tensor:
    """The `Gather` of one process."""
    return rows


class Objective(Protocol):
    """Objective of a network. Several threads make examples at a time."""

    @property
    def head(self) -> Head:
        """Head that the network needs."""

    @property
    def figure(self) -> str:
        """Name of the figure by which it is judged on the items to validate on; larger is better."""

    @property
    def is_constant(self) -> bool:
        """True if the same items make the same example in every step."""

    def items(self, split: str) -> NDArray[np.int64]:
        """Numbers of the items of one of `splits.SPLITS`, ascending."""

    def most(self) -> int:
        """Items that a step may have at most."""

    def home(self, items: NDArray[np.int64], step: Step) -> tuple[str, NDArray[np.int64]]:
        """A node set, and the node of it whose owner learns each item."""

    def lost(self, items: NDArray[np.int64], step: Step) -> Mapping[int, NDArray[np.int64]]:
        """Edges that pass no messages in a step with these items; see `Example`."""

    def example(self, items: NDArray[np.int64], step: Step) -> Example:
        """Example of a step: a function of its items and of the step alone."""

    def loss(self, network: Network, rows: RowsByNodeSet, example: Example) -> torch.Tensor:
        """Mean loss of the items, from the rows that the network made of the example's nodes."""

    def judge(self, network: Network, rows: RowsByNodeSet, example: Example, gather: Gather = alone) -> Evaluation:
        """Evaluate rows, without gradients. An example may be empty where others have a part of its step."""

    def save(self, output: FileWriter) -> None:
        """Write what inference and scores have to know of the items."""

    def facts(self) -> dict[str, Stat]:
        """Stats of the items, such as how many there are."""


def prepare(
    task: Objective, sampler: NeighborSampler, items: NDArray[np.int64], step: Step
) -> tuple[Example, MiniBatch]:
    """A step's example, and the blocks around it."""
    example = task.example(items, step)
    return example, sampler.batch(example.nodes, *step, lost=example.lost)
