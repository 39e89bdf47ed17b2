"""Epochs that are kept, and the one that ends training."""

import numpy as np
import pytest

from superworkflow.tasks.train.model_selection import ModelSelection


@pytest.mark.parametrize("by", ["loss", "figure", "both"])
def test_rules_of_keeping(by):
    """Against plain loops, on epochs with ties, also if selection resumes in the middle."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        count = int(rng.integers(1, 40))
        rows = [
            {"validation_loss": float(loss), "validation_accuracy": float(value)}
            for loss, value in zip(rng.integers(1, 9, count), rng.integers(1, 9, count), strict=True)
        ]
        patience, epoch, kept, worse = int(rng.integers(2, 12)), 0, 0, 0
        keeping = ModelSelection(by, "validation_accuracy")
        while epoch < count and worse < patience:
            if epoch == count // 2:
                keeping = ModelSelection(by, "validation_accuracy", rows[:epoch])
            verdict = keeping.compare(rows[epoch])
            epoch, worse = epoch + 1, 0 if verdict.is_better else worse + 1
            kept = epoch if verdict.is_kept else kept
        assert (kept, epoch) == kept_by_rule(rows, by, patience)


@pytest.mark.parametrize("by", ["loss", "figure", "both"])
def test_training_ends_where_the_loss_can_hardly_fall(by):
    """Labels that are learnt without an error, whose loss falls for ever: the weights of the lowest one are kept."""
    keeping, losses = ModelSelection(by, "validation_accuracy"), [0.5**epoch for epoch in range(40)]
    verdicts = [keeping.compare({"validation_loss": each, "validation_accuracy": 1.0}) for each in losses]
    assert all(each.is_kept for each in verdicts)
    assert [each.is_better for each in verdicts] == [0.5**epoch >= 1e-5 for epoch in range(40)]


def kept_by_rule(rows: list[dict], by: str, patience: int) -> tuple[int, int]:
    """The epoch that is kept, and the last one, both from 1; `both` as in the loop that was published with GAT."""
    most, least, step, kept = 0.0, np.inf, 0, 0
    for epoch, row in enumerate(rows, 1):
        value, loss = row["validation_accuracy"], row["validation_loss"]
        if by == "both":
            better = value >= most or loss <= least
            kept = epoch if value >= most and loss <= least else kept
        else:
            seen = rows[: epoch - 1]
            first = ("validation_accuracy", -1) if by == "figure" else ("validation_loss", 1)
            order = [(first[1] * each[first[0]], each["validation_loss"]) for each in [*seen, row]]
            better = min(order) == order[-1] and order[-1] not in order[:-1]
            kept = epoch if better else kept
        most, least, step = max(most, value), min(least, loss), 0 if better else step + 1
        if step == patience:
            return kept, epoch
    return kept, len(rows)
