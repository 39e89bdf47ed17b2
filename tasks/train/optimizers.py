"""Optimizers: Adam for dense weights, and Adam and Adagrad for rows of embeddings.

They are bit-equal to torch.optim's `Adam`, `SparseAdam` and `Adagrad` with their defaults. Those import torch's
compiler with their first step, even if nothing is compiled: 1.1 CPU seconds and 70 MiB in each process that trains,
half of what a graph of a thousand nodes takes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from superworkflow.tasks.train.params import ConcreteTrainParams

State = dict[str, Any]
"""State of one parameter: `step`, number of steps taken; and tensors of its shape."""
Saved = Mapping[int, Mapping[str, NDArray[Any]]]
"""States as arrays, by number of the parameter: `step` int64 [], the others float32 of its shape."""
_STEP = "step"


class Optimizer(ABC):
    """Updates parameters by their gradients.

    Args:
        parameters: parameters to update; those without a gradient stay as they are.
        learning_rate: greater than 0.
    """

    keeps: ClassVar[tuple[str, ...]]
    """Names of the tensors in each parameter's state, zeros at first."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], learning_rate: float):
        self._parameters, self._rate = list(parameters), learning_rate
        self._states: dict[int, State] = {}

    @property
    def learning_rate(self) -> float:
        return self._rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._rate = value

    def squares(self) -> float:
        """Sum of the squares of all gradients."""
        return sum(float(each.double().square().sum()) for each in self._values())

    def scale(self, factor: float) -> None:
        """Multiply all gradients."""
        for each in self._values():
            each.mul_(factor)

    def _values(self) -> list[Tensor]:
        """Numbers of the gradients; of sparse ones, with a number for each distinct row and column."""
        found = []
        for parameter in self._parameters:
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()
                found.append(parameter.grad.values())
            elif parameter.grad is not None:
                found.append(parameter.grad)
        return found

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update each parameter that has a gradient."""
        for number, parameter in enumerate(self._parameters):
            if parameter.grad is None:
                continue
            if number not in self._states:
                zeros = {name: torch.zeros_like(parameter, requires_grad=False) for name in self.keeps}
                self._states[number] = {_STEP: 0, **zeros}
            state = self._states[number]
            state[_STEP] += 1
            self._change(parameter, parameter.grad, state)

    def states(self) -> dict[int, State]:
        """States by number of the parameter; empty before the first step."""
        return self._states

    def check(self, states: Saved) -> None:
        """Check states.

        Raises:
            ValueError: they are of other parameters or another optimizer.
        """
        for number, given in states.items():
            if not 0 <= number < len(self._parameters) or given.keys() != {_STEP, *self.keeps}:
                raise ValueError(f"no state of parameter {number}: {', '.join(sorted(given))}")
            steps, kept = given[_STEP], [given[name] for name in self.keeps]
            if any(each.shape != self._parameters[number].shape for each in kept) or steps.ndim:
                raise ValueError(f"the state of parameter {number} has another shape")
            if any(each.dtype != np.float32 for each in kept) or steps.dtype != np.int64 or steps < 1:
                raise ValueError(f"the state of parameter {number} is of another kind")

    def load(self, states: Saved) -> None:
        """Restore states, which are copied.

        Raises:
            ValueError: see `check`.
        """
        self.check(states)
        found = dict[int, State]()
        for number, given in states.items():
            like = self._parameters[number]
            found[number] = {
                name: torch.tensor(given[name], dtype=like.dtype, device=like.device) for name in self.keeps
            }
            found[number][_STEP] = int(given[_STEP])
        self._states = found

    @abstractmethod
    def _change(self, parameter: Tensor, gradient: Tensor, state: State) -> None: ...


class Adam(Optimizer):
    """Adam (Kingma and Ba, ICLR 2015, algorithm 1) with its default decays.

    Args:
        parameters, learning_rate: see `Optimizer`.
        weight_decay: L2 penalty, added to the gradient.
    """

    keeps = ("exp_avg", "exp_avg_sq")
    first, second, small = 0.9, 0.999, 1e-8
    """Decay of the means of gradients and of their squares; epsilon of the denominator."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], learning_rate: float, weight_decay: float = 0.0):
        super().__init__(parameters, learning_rate)
        self._decay = weight_decay

    def _change(self, parameter: Tensor, gradient: Tensor, state: State) -> None:
        mean, square, step = state["exp_avg"], state["exp_avg_sq"], state[_STEP]
        if self._decay:
            gradient = gradient.add(parameter, alpha=self._decay)
        mean.lerp_(gradient, 1 - self.first)
        square.mul_(self.second).addcmul_(gradient, gradient, value=1 - self.second)
        by = (square.sqrt() / (1 - self.second**step) ** 0.5).add_(self.small)
        parameter.addcdiv_(mean, by, value=-self._rate / (1 - self.first**step))


class RowAdam(Adam):
    """Adam for rows with sparse gradients: other rows and their states stay as they are."""

    def _change(self, parameter: Tensor, gradient: Tensor, state: State) -> None:
        rows, values = _rows(gradient)
        if not len(rows):
            return
        mean, square, step = state["exp_avg"], state["exp_avg_sq"], state[_STEP]
        before = mean[rows]
        means = values.sub(before).mul_(1 - self.first).add_(before)
        before = square[rows]
        squares = values.pow(2).sub_(before).mul_(1 - self.second).add_(before)
        mean[rows], square[rows] = means, squares
        rate = self._rate * math.sqrt(1 - self.second**step) / (1 - self.first**step)
        parameter[rows] += -rate * means.div_(squares.sqrt_().add_(self.small))


class RowAdagrad(Optimizer):
    """Adagrad (Duchi, Hazan and Singer, JMLR 2011) for rows with sparse gradients."""

    keeps = ("sum",)
    small = 1e-10

    def _change(self, parameter: Tensor, gradient: Tensor, state: State) -> None:
        rows, values = _rows(gradient)
        summed = state["sum"][rows] + values.pow(2)
        state["sum"][rows] = summed
        parameter[rows] = parameter[rows].add_(values / summed.sqrt_().add_(self.small), alpha=-self._rate)


def optimizers_of(
    weights: Iterable[torch.nn.Parameter], embeddings: Iterable[torch.nn.Parameter], params: ConcreteTrainParams
) -> list[Optimizer]:
    """Adam of the dense weights, and RowAdam or RowAdagrad of the embeddings, of which a step reads few rows."""
    sparse = list(embeddings)
    embedded = {id(each) for each in sparse}
    dense = [each for each in weights if id(each) not in embedded]
    made: list[Optimizer] = [Adam(dense, params.learning_rate, params.weight_decay)]
    if sparse:
        by_rows = RowAdagrad if params.embeddings_by == "adagrad" else RowAdam
        made.append(by_rows(sparse, params.learning_rate))
    return made


def clip(optimizers: Iterable[Optimizer], most: float, squares: Callable[[], float]) -> None:
    """Scale the gradients so that their norm is `most` at most, as `torch.nn.utils.clip_grad_norm_` does.

    Args:
        optimizers: those of all parameters that have gradients here.
        most: the norm; 0 for any.
        squares: gives the sum of the squares of all gradients, of all workers.
    """
    if not most:
        return
    factor = most / (math.sqrt(squares()) + 1e-6)
    for optimizer in optimizers if factor < 1 else ():
        optimizer.scale(factor)


def _rows(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct rows that have a gradient, and their gradients [rows, width]."""
    whole = gradient.coalesce()
    return whole.indices()[0], whole.values()


def rate_of(params: ConcreteTrainParams, step: int, steps: int) -> float:
    """Learning rate of a step, from 0.

    In the warm-up it rises by equal amounts and has its full value in the last step of it. Then it is that of
    torch.optim.lr_scheduler: with `linear` of `PolynomialLR`, with `cosine` of `CosineAnnealingLR`.

    Args:
        params: the stage's parameters.
        step: number of steps done.
        steps: number of steps of all epochs.
    """
    if step < params.warmup_steps:
        return params.learning_rate * (step + 1) / params.warmup_steps
    if params.learning_rate_schedule == "constant":
        return params.learning_rate
    share = min(1.0, (step - params.warmup_steps) / max(1, steps - params.warmup_steps))
    left = 1 - share if params.learning_rate_schedule == "linear" else (1 + math.cos(math.pi * share)) / 2
    return params.learning_rate * left
