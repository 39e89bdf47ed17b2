"""Skip-gram with negative sampling in torch: the objective and the bounded steps of `tasks.embed.kernel`, many walks
at a time, for CUDA devices (and for processors, to test it).

Tables stay on the device in float32. Per batch: gather the walks' rows, three batched matrix products for the pairs
inside a walk and three for its negatives, then one scatter of damped gradients per table. Curvatures of duplicates are
summed through a vector of one float per row, so hubs that occur in many walks of a batch cannot overshoot either.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from superworkflow.tasks.embed import EmbedParams
from superworkflow.tasks.embed.tables import EmbeddingTables
from superworkflow.tasks.embed.train import NORM_LIMIT, Vocabulary, key

MIN_BOUND = 0.5
"""Least damping of a step. A batch of many walks on few vertices has rows whose pairs all pull one way; with less than
this their steps may overshoot."""


class TorchKernel:
    """Tables on the device, and the step on a batch of walks."""

    def __init__(self, tables: EmbeddingTables, vocabulary: Vocabulary, params: EmbedParams, threads: int):
        self.params, self.tables, self.threads, self.chunk = params, tables, 1, max(params.batch, 256)
        if params.device == "cpu":
            torch.set_num_threads(threads)
        elif params.products == "tf32":
            torch.backends.cuda.matmul.allow_tf32 = True
        self.device = torch.device(params.device)
        self.bound = max(params.step_bound, MIN_BOUND)
        self.half = params.products == "bfloat16" and params.device == "cuda"
        self.on_device = {name: self._tensor(values) for name, values in tables._asdict().items()}
        self.remap = self._tensor(vocabulary.remap)
        self.threshold = self._tensor(vocabulary.threshold.astype(np.float64) / 2**32)
        self.alias = self._tensor(vocabulary.alias)
        self.keep = self._tensor(vocabulary.keep)
        rows = len(vocabulary.threshold)
        self.curvature = torch.zeros(rows, device=self.device)
        self.random = torch.Generator(device=self.device)
        self._band: tuple[int, torch.Tensor] | None = None

    def _tensor(self, values: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(values).to(self.device)  # shares memory with the host's array on the cpu

    def train(
        self, walks: NDArray[Any], number: int, epoch: int, first_rate: float, last_rate: float
    ) -> tuple[float, float, float]:
        """As `Kernel.train`; random numbers come from (seed, epoch, number of the chunk's first walk)."""
        self.random.manual_seed(key(key(self.params.seed, epoch), number) >> 1)
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        peak = torch.zeros((), device=self.device)
        for first in range(0, len(walks), self.params.batch):
            rate = first_rate + (last_rate - first_rate) * first / len(walks)
            rows, present = self._rows(torch.from_numpy(walks[first : first + self.params.batch]).to(self.device))
            loss, weight, norm = self.step(rows, present, self.negatives(len(rows), rows.shape[1]), rate)
            total += torch.stack([loss, weight]).double()
            peak = torch.maximum(peak, norm) if first else norm
        loss_sum, weight_sum = total.tolist()
        largest = float(peak)
        return loss_sum, weight_sum, largest if largest <= NORM_LIMIT**2 else float("inf")

    def finish(self) -> None:
        """Copy the tables to the host."""
        if self.device.type != "cpu":
            for name, values in self.tables._asdict().items():
                values[...] = self.on_device[name].cpu().numpy()

    def _rows(self, walks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Table rows [walks, positions] and a mask of those present, which come first in each walk."""
        rows = torch.where(walks >= 0, self.remap[walks.long().clamp(min=0)].long(), -1)
        present = rows >= 0
        if len(self.keep):
            chance = torch.rand(rows.shape, generator=self.random, device=self.device)
            present &= chance < self.keep[rows.clamp(min=0)]
        if not bool(present.all()):
            order = torch.argsort((~present).int(), dim=1, stable=True)
            rows, present = rows.gather(1, order), present.gather(1, order)
            width = int(present.sum(1).max())
            rows, present = rows[:, :width], present[:, :width]
        return rows.clamp(min=0), present

    def negatives(self, walks: int, positions: int) -> torch.Tensor:
        """Rows of the negatives of each walk, [walks, shared_negatives for each block]."""
        blocks = max(1, -(-positions // self.params.block))
        shape = (walks, self.params.shared_negatives * blocks)
        slot = torch.randint(len(self.threshold), shape, generator=self.random, device=self.device)
        chance = torch.rand(shape, generator=self.random, device=self.device, dtype=torch.float64)
        return torch.where(chance < self.threshold[slot], slot, self.alias[slot].long())

    def step(
        self, rows: torch.Tensor, present: torch.Tensor, negatives: torch.Tensor, rate: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """One update of both tables; returns loss and weight of the positive pairs, and the largest squared norm.

        Args:
            rows: int64 [walks, positions].
            present: bool [walks, positions].
            negatives: int64 [walks, negatives].
            rate: learning rate.
        """
        table = self.on_device
        mask = present.to(torch.float32)
        c = table["centre"][rows] * mask[..., None]
        o = table["context"][rows] * mask[..., None]
        v = table["context"][negatives]
        c_norm, o_norm, v_norm = (x.square().sum(-1) for x in (c, o, v))

        pairs = self.band(rows.shape[1]) * mask[:, :, None] * mask[:, None, :]
        score = self._product(c, o.mT)
        positive = pairs * torch.sigmoid(-score)
        curve = pairs * _curvature(score)
        loss = (pairs * torch.nn.functional.softplus(-score)).sum()
        c_step, o_step = self._product(positive, o), self._product(positive.mT, c)
        c_curve = (curve @ o_norm[..., None])[..., 0]
        o_curve = (curve.mT @ c_norm[..., None])[..., 0]

        share = pairs.sum(2, keepdim=True) * (self.params.negative / negatives.shape[1])
        score = self._product(c, v.mT)
        gradient = -share * torch.sigmoid(score)
        curve = share * _curvature(score)
        loss = loss + (share * torch.nn.functional.softplus(score)).sum()
        c_step += self._product(gradient, v)
        v_step = self._product(gradient.mT, c)
        c_curve = c_curve + (curve @ v_norm[..., None])[..., 0]
        v_curve = (curve.mT @ c_norm[..., None])[..., 0]

        self._apply("centre", rows.reshape(-1), c_step.flatten(0, 1), c_curve.reshape(-1), rate)
        self._apply(
            "context", torch.cat([rows.reshape(-1), negatives.reshape(-1)]),
            torch.cat([o_step.flatten(0, 1), v_step.flatten(0, 1)]),
            torch.cat([o_curve.reshape(-1), v_curve.reshape(-1)]), rate,
        )  # fmt: skip
        return loss, pairs.sum(), torch.stack([c_norm.max(), o_norm.max(), v_norm.max()]).max()

    def band(self, positions: int) -> torch.Tensor:
        """Weights of the pairs of a walk's positions, [positions, positions]."""
        if self._band is None or self._band[0] != positions:
            window, index = self.params.window, torch.arange(positions, device=self.device)
            distance = (index[:, None] - index[None, :]).abs()
            weight = ((window + 1 - distance) / window).clamp(min=0) * (distance > 0)
            self._band = positions, weight.float()
        return self._band[1]

    def _product(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if self.half:  # sums stay float32, which bmm does on CUDA alone
            return torch.bmm(a.bfloat16(), b.bfloat16(), out_dtype=torch.float32)
        return a @ b

    def _apply(self, name: str, rows: torch.Tensor, steps: torch.Tensor, curve: torch.Tensor, rate: float) -> None:
        self.curvature.index_add_(0, rows, curve)
        scale: torch.Tensor | float = rate
        if self.params.optimizer == "adagrad":
            sums = self.on_device[f"{name}_sum"]
            sums.index_add_(0, rows, steps.square().mean(-1))
            scale = rate / torch.sqrt(sums[rows] + 1e-10)
        scale = scale / (1 + self.bound * scale * self.curvature[rows])
        self.on_device[name].index_add_(0, rows, steps * scale[:, None])
        self.curvature.index_fill_(0, rows, 0.0)


def _curvature(score: torch.Tensor) -> torch.Tensor:
    """(logistic(s) - 1/2) / s; see `tasks.embed._steps`."""
    flat = score.abs() < 1e-2
    return torch.where(flat, 0.25, (torch.sigmoid(score) - 0.5) / torch.where(flat, 1.0, score))
