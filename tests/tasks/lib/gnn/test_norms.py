"""Batch normalization of workers that have some nodes twice is that of one process: rows, gradients, running means."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from superworkflow.tasks.lib.gnn.model.norms import BatchNorm

NODES = [np.array([0, 1, 2, 3, 4, 7]), np.array([2, 4, 5, 6]), np.array([], np.int64)]
TARGETS = [3, 1, 0]
WIDTH = 5


class Threads:
    """`BatchPeers` of threads."""

    def __init__(self, rank: int, barrier: threading.Barrier, board: list):
        self.targets, self._rank, self._barrier, self._board = TARGETS[rank], rank, barrier, board

    def shares(self, nodes: np.ndarray) -> np.ndarray:
        counts = np.bincount(np.concatenate(self._everyone(nodes)))
        return 1 / counts[nodes]

    def total(self, values: np.ndarray) -> np.ndarray:
        return np.sum(self._everyone(values), axis=0)

    def _everyone(self, values: np.ndarray) -> list[np.ndarray]:
        self._barrier.wait(20)
        self._board[self._rank] = values
        self._barrier.wait(20)
        return list(self._board)


def norm() -> BatchNorm:
    made = BatchNorm(WIDTH)
    made.weight.data, made.bias.data = torch.linspace(0.5, 2, WIDTH), torch.linspace(-1, 1, WIDTH)
    return made


def test_of_three_workers() -> None:
    torch.manual_seed(1)
    rows, wanted = torch.randn(8, WIDTH), torch.randn(8, WIDTH)
    own = [[0, 1, 3], [2], []]  # the targets, each at one worker
    whole, given = norm(), rows.clone().requires_grad_()
    made = whole(given, np.arange(8), None)
    (made * wanted)[[0, 1, 3, 2]].sum(1).mean().backward()
    barrier, board = threading.Barrier(3), [np.empty(0)] * 3

    def train(rank: int) -> tuple[BatchNorm, torch.Tensor, torch.Tensor]:
        mine, part = norm(), rows[NODES[rank]].clone().requires_grad_()
        found = mine(part, NODES[rank], Threads(rank, barrier, board))
        places = [list(NODES[rank]).index(each) for each in own[rank]]
        (found * wanted[NODES[rank]])[places].sum().div(max(TARGETS[rank], 1)).backward()
        return mine, found.detach(), part.grad * TARGETS[rank] / sum(TARGETS)

    with ThreadPoolExecutor(3) as threads:
        results = list(threads.map(train, range(3)))
    gradient = torch.zeros(8, WIDTH)
    for rank, (mine, found, part) in enumerate(results):
        assert found.numpy() == pytest.approx(made.detach()[NODES[rank]].numpy(), abs=1e-6)
        gradient.index_add_(0, torch.from_numpy(NODES[rank]), part)
        for name, kept in mine.named_buffers():
            assert kept.numpy() == pytest.approx(whole.get_buffer(name).numpy(), abs=1e-6), name
    assert gradient.numpy() == pytest.approx(given.grad.numpy(), abs=1e-6)
    weights = [mine.weight.grad * TARGETS[rank] / sum(TARGETS) for rank, (mine, _, _) in enumerate(results)]
    assert sum(weights).numpy() == pytest.approx(whole.weight.grad.numpy(), abs=1e-6)
