"""Optimizers against those of torch.optim, and that training does without torch's compiler."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from superworkflow.tasks.train.optimizers import Adam, RowAdagrad, RowAdam, clip, rate_of
from superworkflow.tasks.train.params import TrainParams
from tests.tasks.gnn_graphs import one_kind

SHAPES = (50, 7), (3, 1)
CASES = {
    "adam": (lambda given: Adam(given, 0.01), lambda given: torch.optim.Adam(given, lr=0.01, foreach=False)),
    "adam with decay": (
        lambda given: Adam(given, 0.01, 5e-4),
        lambda given: torch.optim.Adam(given, lr=0.01, weight_decay=5e-4, foreach=False),
    ),
    "adam of rows": (lambda given: RowAdam(given, 0.01), lambda given: torch.optim.SparseAdam(given, lr=0.01)),
    "adagrad of rows": (
        lambda given: RowAdagrad(given, 0.1),
        lambda given: torch.optim.Adagrad(given, lr=0.1, foreach=False),
    ),
}


def _gradients(by_rows: bool, seed: int) -> list[torch.Tensor | None]:
    """Gradients of a step: the second parameter has none in every third, and no rows in every fifth."""
    rng, found = torch.Generator().manual_seed(seed), list[torch.Tensor | None]()
    for number, shape in enumerate(SHAPES):
        if number and seed % 3 == 0:
            found.append(None)
        elif by_rows:
            count = 0 if number and seed % 5 == 0 else 9
            rows = torch.randint(0, shape[0], (1, count), generator=rng)  # some more than once
            values = torch.randn(count, shape[1], generator=rng)
            found.append(torch.sparse_coo_tensor(rows, values, shape, check_invariants=True))
        else:
            found.append(torch.randn(shape, generator=rng))
    return found


def _parameters() -> list[torch.nn.Parameter]:
    rng = torch.Generator().manual_seed(1)
    return [torch.nn.Parameter(torch.randn(shape, generator=rng)) for shape in SHAPES]


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_torch(name: str) -> None:
    made, theirs = CASES[name]
    ours, peers = _parameters(), _parameters()
    optimizer, peer = made(ours), theirs(peers)
    for step in range(40):
        optimizer.zero_grad()
        assert all(each.grad is None for each in ours)
        for own, other, gradient in zip(ours, peers, _gradients("rows" in name, step), strict=True):
            own.grad, other.grad = gradient, None if gradient is None else gradient.clone()
        optimizer.step()
        peer.step()
        if step == 20:  # as from a checkpoint
            saved = {
                number: {key: np.asarray(value) for key, value in state.items()}
                for number, state in optimizer.states().items()
            }
            optimizer = made(ours)
            optimizer.load(saved)
            for state in saved.values():
                for key in set(state) - {"step"}:
                    state[key].fill(np.nan)
    for own, other in zip(ours, peers, strict=True):
        assert torch.equal(own, other)
        assert own.requires_grad


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 1, 6])
def test_rates_are_those_of_torch(schedule: str, warmup: int) -> None:
    params = TrainParams(learning_rate=0.03, learning_rate_schedule=schedule, warmup_steps=warmup)  # type: ignore[arg-type]
    found = [rate_of(params.concrete(False, 30, 30, False), step, 20) for step in range(20)]
    optimizer = torch.optim.SGD(_parameters(), lr=0.03)
    after = {
        "constant": lambda: torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0),
        "linear": lambda: torch.optim.lr_scheduler.PolynomialLR(optimizer, 20 - warmup),
        "cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20 - warmup),
    }[schedule]
    if warmup:
        rising = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / warmup, 1.0, max(1, warmup - 1))
        rates = torch.optim.lr_scheduler.SequentialLR(optimizer, [rising, after()], [warmup])
    else:
        rates = after()
    wanted = []
    for _ in range(20):
        wanted.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        rates.step()
    assert found == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("most", [0.5, 500.0])
def test_clipping_is_that_of_torch(by_rows: bool, most: float) -> None:
    """Duplicates among gradients by rows are added up first."""
    ours, peers = _parameters(), _parameters()
    for own, other, gradient in zip(ours, peers, _gradients(by_rows, 4), strict=True):
        assert gradient is not None
        own.grad, other.grad = gradient.clone(), gradient.to_dense().clone()
    optimizer = Adam(ours, 0.1)
    assert optimizer.squares() ** 0.5 == pytest.approx(float(torch.nn.utils.clip_grad_norm_(peers, most)), rel=1e-5)
    clip([optimizer], most, optimizer.squares)
    for own, other in zip(ours, peers, strict=True):
        assert torch.allclose(own.grad.to_dense(), other.grad, rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ({2: {"step": 1, "exp_avg": 0, "exp_avg_sq": 0}}, "no state of parameter 2"),
        ({0: {"step": 1, "sum": 0}}, "no state of parameter 0: step, sum"),
        ({0: {"step": 1, "exp_avg": np.zeros((50, 7)), "exp_avg_sq": np.zeros((50, 6))}}, "0 has another shape"),
    ],
    ids=["a parameter more", "another kind", "another shape"],
)
def test_a_state_of_others_is_refused(states: dict, said: str) -> None:
    optimizer = Adam(_parameters(), 0.01)
    with pytest.raises(ValueError, match=said):
        optimizer.load(states)
    assert optimizer.states() == {}


def test_a_stage_trains_without_the_compiler_of_torch(tmp_path: Path) -> None:
    graph = one_kind(tmp_path / "graph").location.local_path
    given = ["stage", "train", "--input", f"graph={graph}", "--output", str(tmp_path / "out")]
    given += ["--params-json", '{"hidden": 16, "batch": 8, "epochs": 2, "fanouts": "3,all"}']
    command = [sys.executable, "-X", "importtime", "-m", "superworkflow", *given]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "torch" in imported
    assert not {"torch._dynamo", "sympy"} & imported


def test_the_rate_of_triples_rises_first() -> None:
    """Without that, the first steps of Adam end the units that sum the products of many edge sets."""
    warmed = {
        items: TrainParams(batch=512).concrete(True, items, 512, True, relations=True).warmup_steps
        for items in (10**6, 4000, 100)
    }
    assert warmed == {10**6: 200, 4000: 960 // 6, 100: 120 // 6}
    assert TrainParams(warmup_steps=7).concrete(True, 4000, 512, True, relations=True).warmup_steps == 7
    assert not TrainParams().concrete(True, 4000, 512, True).warmup_steps


def test_few_triples_are_learned_by_a_narrow_network_with_dropout() -> None:
    def chosen(items: int, relations: bool, **given: Any) -> tuple[int, float]:
        found = TrainParams(**given).concrete(True, items, 512, True, relations)
        return found.hidden, found.dropout

    assert chosen(100_000, True) == (64, 0.3)
    assert chosen(100_001, True) == chosen(4000, False) == (256, 0.0)
    assert chosen(4000, True, hidden=32, dropout=0.1) == (32, 0.1)
