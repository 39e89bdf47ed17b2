"""Checkpoints of training: everything that the next step depends on.

A state is written to one of two slots and then noted, so that a crash leaves either the old state or the new one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, TypeAdapter

from superworkflow.infra.storage.safe_names import reason_of
from superworkflow.tasks.lib.checkpoint_stores import Arrays, CheckpointStore
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.train.optimizers import Optimizer

CHECKPOINT_SECONDS = 60.0
"""Time between two checkpoints, which are saved between steps."""
UNUSABLE = "training begins anew: there is a checkpoint, and it cannot be used"
ANOTHERS = f"{UNUSABLE} (one process and a worker group each resume from their own)"
_Count = Annotated[int, Field(ge=0)]


@dataclass
class TrainingPosition:
    """Position of training.

    Args:
        epoch, step: next epoch and step.
        losses: losses of the steps done, by epoch.
        epochs: reported row of each finished epoch.
        first: validation row of the first weights, as epoch 0, where they may be kept; else empty.
        best: epoch whose weights are kept, from 1; 0 for none yet, or for the first weights.
        worse: epochs since the last better one.
        saves: number of saves.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", strict=True)

    epoch: _Count = 0
    step: _Count = 0
    losses: list[list[float]] = field(default_factory=list)
    epochs: list[dict[str, float]] = field(default_factory=list)
    first: dict[str, float] = field(default_factory=dict)
    best: _Count = 0
    worse: _Count = 0
    saves: _Count = 0

    @property
    def has_best(self) -> bool:
        """True if weights are kept."""
        return self.best > 0 or bool(self.first)

    @property
    def kept(self) -> dict[str, float]:
        """Row of the kept weights; without any that of the last epoch."""
        if self.best == 0 and self.first:
            return self.first
        return self.epochs[self.best - 1]

    @property
    def slot(self) -> str:
        """Slot of the last state."""
        return f"state-{self.saves % 2}"


def saved_at(position: TrainingPosition) -> str:
    """Message of training that was asked to stop and has saved."""
    return f"stopped: saved after {sum(map(len, position.losses))} steps, from which the same command resumes"


class TrainedWeights(NamedTuple):
    """Weights of the network, and learned rows by node set that it does not hold itself."""

    network: Arrays
    rows: Arrays


class TrainingState(NamedTuple):
    """Position of training, and the best weights so far; empty if there are none yet."""

    position: TrainingPosition
    best: TrainedWeights


class CheckpointClock:
    """Time since the last save."""

    def __init__(self) -> None:
        self._saved = time.monotonic()

    def is_due(self) -> bool:
        return time.monotonic() - self._saved > CHECKPOINT_SECONDS

    def reset(self) -> None:
        self._saved = time.monotonic()


def save_checkpoint(
    kept: CheckpointStore, network: Network, optimizers: list[Optimizer], best: Mapping[str, NDArray[Any]],
    position: TrainingPosition, before_note: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Write the state to the slot of the position, then note the position.

    Args:
        kept: store of checkpoints.
        network, optimizers, best, position: the state.
        before_note: called before the note, to write what else the slot is to have.
    """
    arrays = {f"weights.{key}": values for key, values in network.arrays().items()}
    arrays |= {f"best.{key}": values for key, values in best.items()}
    for number, optimizer in enumerate(optimizers):
        for item, values in optimizer.states().items():
            for key, value in values.items():
                arrays[f"optimizer.{number}.{item}.{key}"] = torch.as_tensor(value).detach().cpu().numpy()
    kept.write(position.slot, arrays)
    before_note()
    kept.note(json.dumps(asdict(position)))


def noted_position(kept: CheckpointStore, log: Callable[[str], None]) -> TrainingPosition | None:
    """Position of the last state; None if there is none. `log` is called if it cannot be read."""
    try:
        text = kept.noted()
        return None if text is None else TypeAdapter(TrainingPosition).validate_json(text)
    except (OSError, ValueError) as error:
        log(f"{UNUSABLE} ({reason_of(error)})")
        return None


class SavedNetwork(NamedTuple):
    """State of a network: weights, best weights, and the optimizers' states."""

    weights: Arrays
    best: Arrays
    states: list[dict[int, Arrays]]

    def take(self, network: Network, optimizers: list[Optimizer]) -> None:
        """Restore it."""
        network.load_arrays(self.weights)
        for optimizer, given in zip(optimizers, self.states, strict=True):
            optimizer.load(given)


def read_checkpoint(
    kept: CheckpointStore,
    position: TrainingPosition,
    network: Network,
    optimizers: list[Optimizer],
    log: Callable[[str], None],
) -> SavedNetwork | None:
    """Read the checkpoint of a position; None if it is incomplete, or of another network.

    Args:
        kept: store of checkpoints.
        position: as noted.
        network, optimizers: to check against; not changed.
        log: called with the reason if it cannot be used.
    """
    try:
        parts: dict[str, Arrays] = {"weights": {}, "best": {}, "optimizer": {}}
        for name, values in kept.read(position.slot).items():
            part, _, key = name.partition(".")
            if part not in parts:
                raise ValueError(f"{name} is no part of it")
            parts[part][key] = values
        saved = SavedNetwork(
            parts["weights"],
            parts["best"],
            [_states_of(number, parts["optimizer"]) for number in range(len(optimizers))],
        )
        network.check(saved.weights)
        if saved.best or position.has_best:
            network.check(saved.best)
        for optimizer, given in zip(optimizers, saved.states, strict=True):
            optimizer.check(given)
        return saved
    except (OSError, ValueError) as error:
        log(f"{UNUSABLE} ({reason_of(error)})")
        return None


def _states_of(optimizer: int, arrays: Arrays) -> dict[int, Arrays]:
    states: dict[int, Arrays] = {}
    for name, values in arrays.items():
        which, item, key = name.split(".")
        if int(which) == optimizer:
            states.setdefault(int(item), {})[key] = values
    return states
