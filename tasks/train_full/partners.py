"""Partners of the scheduler: ends of epochs, tensor workers, other graph servers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.train_full.layer_tasks import Task

if TYPE_CHECKING:
    from superworkflow.infra.engines.workers.calls import CallResult  # needs pyzmq
    from superworkflow.tasks.lib.gnn.tensor_tasks import TensorFacts  # needs compiled kernels
    from superworkflow.tasks.train_full.whole_network import NetworkWeights


class Verdict(NamedTuple):
    """Decision on further epochs at the end of one.

    Args:
        is_over: training ends.
        is_sync: further epochs are synchronous.
    """

    is_over: bool
    is_sync: bool


class TensorPool(Protocol):
    """Tensor workers, which execute `AV`. Results come back on any thread."""

    @property
    def available(self) -> bool:
        """True if somebody is there."""

    def submit(
        self, facts: TensorFacts, versions: Mapping[int, NetworkWeights], version: int,
        arrays: Sequence[NDArray[Any]], ended: Callable[[CallResult | None], None],
    ) -> None:  # fmt: skip
        """Execute `tensor_tasks.compute` with a version of the weights, and pass its result on, None if nobody did."""

    def end_epoch(self, epoch: int, queue: float) -> None:
        """Adapt to the mean number of tasks that waited for a thread in an epoch."""


class Ghosts(Protocol):
    """Rows of an interval of another server, which its `SC` has published in an epoch."""

    @property
    def task(self) -> Task: ...

    @property
    def interval(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def rows(self) -> NDArray[np.uint8]: ...


class Servers(Protocol):
    """The other graph servers. What comes of them comes on any thread."""

    ghosts: deque[Any]
    """`Ghosts` that have come, those of an interval in the order of its tasks."""

    def begin(self, wake: Callable[[], None], fail: Callable[[BaseException], None]) -> None:
        """Call `wake` when something has come, and `fail` when nothing more will."""

    def executed(self, task: Task, interval: int, epoch: int) -> None:
        """Send what a task has made for others, if it has."""

    def put(self, ghosts: Any) -> None:
        """Write rows of others into their table."""

    def may_add(self, epoch: int) -> bool:
        """True if the sum of the gradients of all intervals before this server's is there."""

    def add(self, epoch: int, losses: Sequence[float], gradients: Sequence[NetworkWeights]) -> None:
        """Add those of its intervals, in their order, and pass the sum on."""

    def has_sum(self, epoch: int) -> bool:
        """True if the sum of all is there."""

    def sum(self, epoch: int) -> tuple[list[float], list[NetworkWeights]]:
        """Losses of all intervals, and the sum of all gradients, or those of each; once."""

    def may_end(self, epoch: int) -> bool:
        """True if what is needed to judge an epoch is there."""


class Epochs(Protocol):
    """Work at the ends of epochs; one call at a time."""

    def update(self, epoch: int, losses: Sequence[float], gradients: Sequence[NetworkWeights]) -> NetworkWeights:
        """Weights after an update by the gradients of all intervals, in their order."""

    def end(self, epoch: int) -> Verdict:
        """Judge an epoch, whose validation is done."""
