"""Names of the tasks of a network's layers, and the order and state of those of an interval; see `whole_network`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:  # needs compiled kernels, which plans do without
    from superworkflow.tasks.lib.gnn.tensor_tasks import Rows
    from superworkflow.tasks.train_full.whole_layers import Kept

FORWARD, BACK, VALIDATION = "forward", "back", "validation"
AV, SC, GA, AE, WU = "AV", "SC", "GA", "AE", "WU"


class Task(NamedTuple):
    """A task of each interval in each epoch.

    Args:
        way: `FORWARD`, `BACK`, or `VALIDATION`, which is forward without dropout.
        kind: `AV`, `SC`, `GA` or `AE`.
        layer: number of the layer, from 0.
    """

    way: str
    kind: str
    layer: int

    @property
    def gathers(self) -> bool:
        """True if it reads what other intervals published."""
        return self.kind in (GA, AE)

    @property
    def table(self) -> tuple[str, int]:
        """Key of the table that `SC` and the gather after it share."""
        return self.way, self.layer


@dataclass
class IntervalState:
    """State of an interval in an epoch.

    Args:
        values: what each layer reads, by number of the layer.
        kept: what each layer keeps between tasks.
        rows: products before they are published, or the gradient on the way back.
        loss: the interval's part of the loss.
        gradients: gradients of each layer's weights.
    """

    values: dict[int, Rows] = field(default_factory=dict)
    kept: dict[int, Kept] = field(default_factory=dict)
    rows: Rows = field(default_factory=lambda: np.empty((0, 0), np.float32))
    loss: float = 0.0
    gradients: dict[int, dict[str, Rows]] = field(default_factory=dict)


def forward_tasks(way: str, gathers: Iterable[bool], gather: str) -> list[Task]:
    """Tasks of an interval forwards.

    Args:
        way: `FORWARD` or `VALIDATION`.
        gathers: of each layer, whether it gathers.
        gather: kind of the task that does, `GA` or `AE`.
    """
    found = []
    for number, is_gathered in enumerate(gathers):
        found += [Task(way, kind, number) for kind in ((AV, SC, gather) if is_gathered else (AV,))]
    return found


def back_tasks(gathers: Iterable[bool], gather: str) -> list[Task]:
    """Tasks of an interval backwards; see `forward_tasks`."""
    found = []
    for number, is_gathered in reversed([*enumerate(gathers)]):
        found += [Task(BACK, kind, number) for kind in ((SC, gather, AV) if is_gathered else (AV,))]
    return found


def following_task(programs: Iterable[Sequence[Task]], task: Task) -> Task | None:
    """The `AV` that comes right after one, so that a tensor worker may do both in one call."""
    pairs = {one: other for program in programs for one, other in pairwise(program)}
    found = pairs.get(task)
    return found if found is not None and (task.kind, found.kind, found.way) == (AV, AV, task.way) else None
