"""Checkpoints of training: everything that the next step depends on.

A state is written in one of two slots, and then its name is noted, so that a crash leaves the old one or the new one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol

import torch
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, TypeAdapter

from superworkflow.infra.storage.safe_names import reason_of
from superworkflow.tasks.lib.formats.safetensors import read_tensors, write_tensors
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.train.optimizers import Optimizer

STATE = "state.json"
GROUP_NOTE = "workers.json"
"""Names of the notes of one process and of a worker group."""
UNUSABLE = "training begins anew: there is a checkpoint, and it cannot be used"
ANOTHERS = f"{UNUSABLE} (one process and workers each go on from their own)"
Arrays = dict[str, NDArray[Any]]
_Count = Annotated[int, Field(ge=0)]


@dataclass
class TrainingPosition:
    """Position of training.

    Args:
        epoch, step: that come next.
        losses: of the steps done, by epoch.
        epochs: what is reported of each finished epoch.
        best: number of the one whose weights are kept, from 1; 0 for none yet.
        worse: epochs since one that was better than those before.
        saves: how often all was saved.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", strict=True)

    epoch: _Count = 0
    step: _Count = 0
    losses: list[list[float]] = field(default_factory=list)
    epochs: list[dict[str, float]] = field(default_factory=list)
    best: _Count = 0
    worse: _Count = 0
    saves: _Count = 0

    @property
    def slot(self) -> str:
        """Slot of the last state."""
        return f"state-{self.saves % 2}"


class CheckpointStore(Protocol):
    """Store of checkpoints."""

    def write(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace the arrays of this name."""

    def read(self, name: str) -> Arrays:
        """The arrays of this name. Raises OSError or ValueError where there are none that are whole."""

    def note(self, text: str) -> None:
        """Replace the note, as a whole."""

    def noted(self) -> str | None:
        """The note; None for none."""


class Folder:
    """A local folder of checkpoints.

    Args:
        path: it.
    """

    def __init__(self, path: Path):
        self._path = path

    def write(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        write_tensors(self._path / f"{name}.safetensors", arrays)

    def read(self, name: str) -> Arrays:
        return read_tensors(self._path / f"{name}.safetensors")

    def note(self, text: str) -> None:
        temporary = self._path / f"{STATE}.tmp"
        temporary.write_text(text)
        temporary.replace(self._path / STATE)

    def noted(self) -> str | None:
        path = self._path / STATE
        return path.read_text() if path.is_file() else None


def save_checkpoint(
    kept: CheckpointStore, network: Network, optimizers: list[Optimizer], best: Mapping[str, NDArray[Any]],
    position: TrainingPosition, beside: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Write all of it in the slot of the position, then note that.

    Args:
        kept: where to.
        network, optimizers, best, position: what to save.
        beside: called before the note; what else the slot is to have must be there when it returns.
    """
    arrays = {f"weights.{key}": values for key, values in network.arrays().items()}
    arrays |= {f"best.{key}": values for key, values in best.items()}
    for number, optimizer in enumerate(optimizers):
        for item, values in optimizer.states().items():
            for key, value in values.items():
                arrays[f"optimizer.{number}.{item}.{key}"] = torch.as_tensor(value).detach().cpu().numpy()
    kept.write(position.slot, arrays)
    beside()
    kept.note(json.dumps(asdict(position)))


def noted_position(kept: CheckpointStore, tell: Callable[[str], None]) -> TrainingPosition | None:
    """Position of the last state; None where there is none. `tell` is called with why one cannot be read."""
    try:
        text = kept.noted()
        return None if text is None else TypeAdapter(TrainingPosition).validate_json(text)
    except (OSError, ValueError) as error:
        tell(f"{UNUSABLE} ({reason_of(error)})")
        return None


class SavedNetwork(NamedTuple):
    """State of a whole checkpoint of this network: weights, the best ones, and the optimizers' states."""

    weights: Arrays
    best: Arrays
    states: list[dict[int, Arrays]]

    def take(self, network: Network, optimizers: list[Optimizer]) -> None:
        """Go back to them."""
        network.load_arrays(self.weights)
        for optimizer, given in zip(optimizers, self.states, strict=True):
            optimizer.load(given)


def read_checkpoint(
    kept: CheckpointStore,
    position: TrainingPosition,
    network: Network,
    optimizers: list[Optimizer],
    tell: Callable[[str], None],
) -> SavedNetwork | None:
    """The checkpoint of a position; None where it is not whole, or not of this network.

    Args:
        kept: where it is.
        position: as it was noted.
        network, optimizers: whose it must be; nothing of them changes.
        tell: called with why it cannot be used.
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
        if saved.best or position.best:
            network.check(saved.best)
        for optimizer, given in zip(optimizers, saved.states, strict=True):
            optimizer.check(given)
        return saved
    except (OSError, ValueError) as error:
        tell(f"{UNUSABLE} ({reason_of(error)})")
        return None


def load_checkpoint(
    kept: CheckpointStore, network: Network, optimizers: list[Optimizer], tell: Callable[[str], None]
) -> tuple[TrainingPosition, Arrays] | None:
    """Go back to the checkpoint: its position and the best weights; None where there is none that is whole.

    Args:
        kept: where it is.
        network, optimizers: what goes back, both new; they are as they were where None is returned.
        tell: called with why one that is there cannot be used.
    """
    position = noted_position(kept, tell)
    saved = None if position is None else read_checkpoint(kept, position, network, optimizers, tell)
    if position is None or saved is None:
        return None
    saved.take(network, optimizers)
    return position, saved.best


def _states_of(optimizer: int, arrays: Arrays) -> dict[int, Arrays]:
    states: dict[int, Arrays] = {}
    for name, values in arrays.items():
        which, item, key = name.split(".")
        if int(which) == optimizer:
            states.setdefault(int(item), {})[key] = values
    return states
