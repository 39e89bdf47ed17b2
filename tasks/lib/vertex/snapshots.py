"""Snapshots of a run between its steps, from which it resumes: the end of a step is a consistent cut."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, Protocol

from numpy.typing import NDArray
from pydantic import ConfigDict, Field, TypeAdapter

from superworkflow.infra.process.shutdown import Shutdown
from superworkflow.infra.storage.safe_names import reason_of
from superworkflow.tasks.lib.checkpoint_stores import Arrays, CheckpointStore

MOST_SHARE = 20
"""A snapshot is followed by this many times the seconds that it took, before the next one."""
UNUSABLE = "the run begins anew: there is a snapshot, and it cannot be used"
_Count = Annotated[int, Field(ge=0)]


@dataclass
class RunPosition:
    """Position of a run between two steps.

    Args:
        step: the last one.
        top: bits of the largest signal.
        updates: of all steps.
        trace: a row for each step.
        globals: values of the syncs.
        workers: that have the state; 0 for one process.
        saves: number of snapshots.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    step: _Count = 0
    top: int = 0
    updates: _Count = 0
    trace: list[dict[str, int | float]] = field(default_factory=list)
    globals: list[float] = field(default_factory=list)
    workers: _Count = 0
    saves: _Count = 0

    @property
    def slot(self) -> str:
        """Slot of the last snapshot; the other one has the state before."""
        return f"snapshot-{self.saves % 2}"


class SnapshotGroup(Protocol):
    """The workers that take a snapshot together."""

    rank: int
    size: int

    def barrier(self) -> None:
        """Wait until all are here."""

    def all_agree(self, fine: bool) -> bool:
        """True if all say so."""


class Alone:
    """The `SnapshotGroup` of one process."""

    rank, size = 0, 0

    def barrier(self) -> None:
        """Nobody to wait for."""

    def all_agree(self, fine: bool) -> bool:
        return fine


class Snapshots:
    """Snapshots of one run.

    Args:
        kept: store of checkpoints.
        every_s: seconds between two snapshots at least; 0 for none but at an early end.
        is_stopping: true once the process is to end.
        end: called after the snapshot for which the process waited.
        log: for people.
        saved: called after each snapshot.
        group: that takes them.
    """

    def __init__(
        self, kept: CheckpointStore, every_s: float, is_stopping: Callable[[], bool], end: Callable[[], None],
        log: Callable[[str], None], saved: Callable[[], None] = lambda: None, group: SnapshotGroup | None = None,
    ):  # fmt: skip
        self._kept, self._every_s, self._is_stopping, self._end = kept, every_s, is_stopping, end
        self._log, self._saved, self._group = log, saved, group or Alone()
        self._wait_s, self._last = every_s, time.monotonic()
        self.seconds = 0.0

    def wishes(self) -> tuple[int, int]:
        """1 if this process wants a snapshot, and 1 if it wants to end after it; any worker's wish counts."""
        due = self._every_s > 0 and time.monotonic() - self._last >= self._wait_s and self._group.rank == 0
        stopping = self._is_stopping()
        return int(due or stopping), int(stopping)

    def save(self, position: RunPosition, arrays: Mapping[str, NDArray[Any]], stop: bool) -> None:
        """Write a state to the slot that does not have the last one, then note it. Collective."""
        began = time.monotonic()
        position.saves, position.workers = position.saves + 1, self._group.size
        self._kept.write(self._name(position), arrays)
        self._group.barrier()
        if self._group.rank == 0:
            self._kept.note(json.dumps(asdict(position)))
        self._saved()
        self._last = time.monotonic()
        self.seconds += self._last - began
        self._wait_s = max(self._every_s, MOST_SHARE * (self._last - began))
        if stop:
            self._group.barrier()  # the note is written
            self._log(f"stopped: saved after {position.step} steps, from which the same command resumes")
            self._end()

    def restore(self, expected: Mapping[str, NDArray[Any]]) -> tuple[RunPosition, Arrays] | None:
        """Position and arrays of the last snapshot; None for none. Collective.

        Args:
            expected: arrays of the same names, types and shapes.
        """
        position, arrays = None, Arrays()
        try:
            text = self._kept.noted()
            if text is not None:
                position = TypeAdapter(RunPosition).validate_json(text)
                if position.workers != self._group.size:
                    raise ValueError(f"it is of {position.workers or 'no'} workers")
                arrays = self._kept.read(self._name(position))
                if _kinds(arrays) != _kinds(expected):
                    raise ValueError("it is of another program or graph")
        except (OSError, ValueError) as error:
            position = None
            self._log(f"{UNUSABLE} ({reason_of(error)})")
        if not self._group.all_agree(position is not None) or position is None:
            return None
        self._log(f"resuming after step {position.step}")
        return position, arrays

    def _name(self, position: RunPosition) -> str:
        return f"{position.slot}-worker-{self._group.rank}" if self._group.size else position.slot


def alone(kept: CheckpointStore, every_s: float, shutdown: Shutdown, log: Callable[[str], None],
          saved: Callable[[], None]) -> Snapshots:  # fmt: skip
    """Snapshots of one process, which also takes one before it is ended."""
    return Snapshots(kept, every_s, lambda: shutdown.requested, shutdown.end, log, saved)


def _kinds(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    return {name: (each.shape, each.dtype) for name, each in arrays.items()}
