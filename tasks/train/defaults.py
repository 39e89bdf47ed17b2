"""Defaults of training that depend on the task and the number of links; measured in docs/measurements/gnn.md."""

from __future__ import annotations

from typing import Any

from superworkflow.tasks.lib.gnn.model.config import LINKS, NetworkConfig
from superworkflow.tasks.lib.gnn.objective.base import Objective
from superworkflow.tasks.train import ALL, USUAL_EPOCHS, TrainParams

CLASSES = {"learning_rate": 0.01, "dropout": 0.5, "epochs": USUAL_EPOCHS, "patience": 0, "kept_by": "loss"}
RATE, EMBEDDED_RATE = 0.003, 0.001
LINK_STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 400, 10, 60


def settled(params: TrainParams, task: Objective, shape: NetworkConfig) -> TrainParams:
    """Parameters with a value for each that was left to the task."""
    usual = _of_links(params, task, shape) if task.head.task == LINKS else CLASSES
    lacking = {name: value for name, value in usual.items() if getattr(params, name) is None}
    return params.model_copy(update=lacking)


def _of_links(params: TrainParams, task: Objective, shape: NetworkConfig) -> dict[str, Any]:
    """Defaults of link prediction; dropout of learned embeddings would hide which node it is."""
    size = task.most() if params.batch == ALL else min(int(params.batch), task.most())
    steps = -(-len(task.items("train")) // size)
    return {
        "learning_rate": EMBEDDED_RATE if shape.embedded() else RATE,
        "dropout": 0.0 if shape.embedded() else 0.3,
        "epochs": min(MOST_EPOCHS, max(FEWEST_EPOCHS, -(-LINK_STEPS // steps))),
        "patience": 8,
        "kept_by": "figure",
    }
