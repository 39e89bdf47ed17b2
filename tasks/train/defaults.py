"""Defaults of training that depend on the task, the model and the number of items to train on.

A pass over 140 labelled nodes is one step, over ten million it is ten thousand, so a constant number of epochs is too
few for one and too many for the other. The values of few labels are those of Kipf and Welling (ICLR 2017) and of
Veličković et al. (ICLR 2018): about 200 steps, weight decay 5e-4.

Links are learned at a lower rate and for fewer passes, since each pass has many of them; dropout of learned embeddings
would hide which node it is. Dropout changes the variance of what layers read, which a softmax tolerates and a predicted
number does not: latitudes of airports by longitude, altitude and routes have an RMSE of 14.8° without and 24.4° with
it. Figures are in docs/measurements/gnn.md.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

AUTO: Literal["auto"] = "auto"
MOST_EPOCHS, LEAST_EPOCHS = 200, 10
STEPS = 6000
"""Steps after which more epochs than `LEAST_EPOCHS` are not begun."""
LINK_STEPS, MOST_LINK_EPOCHS, LINK_PATIENCE, LINK_PATIENCE_STEPS = 400, 60, 8, 250
"""Patience is that number of epochs, and of steps: an epoch of a small graph has eight, and its validation links are so
few that the best of the first epochs may be chance."""
NEGATIVES = 16
TRIPLE_STEPS, MOST_TRIPLE_EPOCHS, TRIPLE_PATIENCE, TRIPLE_NEGATIVES = 1200, 120, 20, 64
TRIPLE_WARMUP = 200
"""Steps in which the rate rises. The first steps of Adam move each weight by about the rate, and rows that sum products
of a hundred edge sets by as much of each: without them the loss is 275 after an epoch, and most units are dead then."""
WIDTH, FEW_TRIPLES, FEW_TRIPLES_WIDTH, FEW_TRIPLES_DROPOUT = 256, 100_000, 64, 0.3
"""Width of hidden layers; width and dropout for at most this number of triples. A hundred edge sets of 256 columns have
13 million weights. More triples were not measured."""
FEW_ITEMS = 5000
"""Labelled nodes below which weight decay is needed: a network of the usual width has more weights."""


class TrainingSchedule(NamedTuple):
    """Course of training; the names are those of `TrainParams`."""

    epochs: int
    patience: int
    learning_rate: float
    weight_decay: float
    dropout: float
    kept_by: Literal["loss", "figure", "both"]
    warmup_steps: int = 0


def schedule(
    links: bool, items: int, batch: int, learned: bool, numbers: bool = False, relations: bool = False
) -> TrainingSchedule:
    """Default course of training.

    Args:
        links: the task is link prediction, else classification of nodes.
        items: number of nodes or links to train on.
        batch: number of them in a step.
        learned: the network learns embeddings of nodes without features.
        numbers: the task is regression.
        relations: the links are of all relations, learned by ranks.
    """
    steps = max(1, -(-items // max(1, batch)))
    epochs = min(MOST_EPOCHS, max(LEAST_EPOCHS, STEPS // steps))
    patience = max(5, epochs // 4)
    if relations:
        epochs = min(MOST_TRIPLE_EPOCHS, max(LEAST_EPOCHS, -(-TRIPLE_STEPS // steps)))
        warmup = min(TRIPLE_WARMUP, epochs * steps // (TRIPLE_STEPS // TRIPLE_WARMUP))
        dropout = FEW_TRIPLES_DROPOUT if items <= FEW_TRIPLES else 0.0
        return TrainingSchedule(epochs, TRIPLE_PATIENCE, 0.01, 0.0, dropout, "figure", warmup)
    if links:
        epochs = min(MOST_LINK_EPOCHS, max(LEAST_EPOCHS, -(-LINK_STEPS // steps)))
        patience = max(LINK_PATIENCE, -(-LINK_PATIENCE_STEPS // steps))
        return TrainingSchedule(epochs, patience, 0.003, 0.0, 0.0 if learned else 0.3, "figure")
    decay = 5e-4 if items <= FEW_ITEMS else 0.0
    return TrainingSchedule(epochs, patience, 0.01, decay, 0.0 if numbers else 0.5, "loss")
