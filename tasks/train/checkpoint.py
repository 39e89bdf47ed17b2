"""Checkpoints of training: everything that the next step depends on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from superworkflow.infra.storage.names import fault_of
from superworkflow.tasks._gnn.network import Network
from superworkflow.tasks._gnn.tensors import read_tensors, write_tensors

STATE = "state.json"
Arrays = dict[str, NDArray[Any]]


@dataclass
class Position:
    """How far training is.

    Args:
        epoch, step: that come next.
        losses: of the steps done, by epoch.
        epochs: what is reported of each finished epoch.
        best: number of the best of them, from 1; 0 for none yet.
        worse: epochs since then.
    """

    epoch: int = 0
    step: int = 0
    losses: list[list[float]] = field(default_factory=list)
    epochs: list[dict[str, float]] = field(default_factory=list)
    best: int = 0
    worse: int = 0


def save_checkpoint(
    folder: Path, network: Network, optimizers: list[torch.optim.Optimizer], best: Mapping[str, NDArray[Any]],
    position: Position,
) -> None:  # fmt: skip
    """Write all of it under a name of its own, then switch to it in one rename; a crash leaves the old or the new."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"state-{position.epoch}-{position.step}.safetensors"
    arrays = {f"weights.{key}": values for key, values in network.arrays().items()}
    arrays |= {f"best.{key}": values for key, values in best.items()}
    for number, optimizer in enumerate(optimizers):
        for item, values in optimizer.state_dict()["state"].items():
            for key, value in values.items():
                arrays[f"optimizer.{number}.{item}.{key}"] = torch.as_tensor(value).detach().cpu().numpy()
    write_tensors(folder / name, arrays)
    temporary = folder / f"{STATE}.tmp"
    temporary.write_text(json.dumps({"position": asdict(position), "file": name}))
    temporary.replace(folder / STATE)
    for path in folder.glob("state-*.safetensors"):
        if path.name != name:
            path.unlink()


def load_checkpoint(
    folder: Path, network: Network, optimizers: list[torch.optim.Optimizer]
) -> tuple[Position, Arrays] | None:
    """Go back to the checkpoint: its position and the best weights; None where there is none that is whole."""
    try:
        state = json.loads((folder / STATE).read_text())
        if fault_of(state["file"]):
            return None
        arrays = read_tensors(folder / state["file"])
        position = Position(**state["position"])
        parts: dict[str, Arrays] = {"weights": {}, "best": {}, "optimizer": {}}
        for name, values in arrays.items():
            part, _, key = name.partition(".")
            parts[part][key] = values
        restored = [_state_of(number, optimizer, parts["optimizer"]) for number, optimizer in enumerate(optimizers)]
        network.load_arrays(parts["weights"])
        for optimizer, given in zip(optimizers, restored, strict=True):
            optimizer.load_state_dict(given)
        return position, parts["best"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError):
        return None


def _state_of(number: int, optimizer: torch.optim.Optimizer, arrays: Arrays) -> dict[str, Any]:
    state: dict[int, dict[str, Any]] = {}
    for name, values in arrays.items():
        which, item, key = name.split(".")
        if int(which) == number:
            whole = torch.from_numpy(np.array(values))
            state.setdefault(int(item), {})[key] = int(whole) if whole.dtype == torch.int64 else whole
    given: dict[str, Any] = optimizer.state_dict()
    return {**given, "state": state}
