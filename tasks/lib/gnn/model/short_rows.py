"""Rows in the precision of products that read them: tensors of float32 or bfloat16, and arrays as kernels get them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.bfloat16 import BFLOAT16, FLOAT32

TYPES = {FLOAT32: torch.float32, BFLOAT16: torch.bfloat16}
"""Type of a tensor's numbers, by precision."""
NUMBERS: dict[str, type[np.generic]] = {FLOAT32: np.float32, BFLOAT16: np.int16}
"""Type of an array's numbers, by precision: NumPy has no bfloat16, kernels read its bits."""


def kind_of(numbers: NDArray[Any]) -> torch.dtype:
    """Type of the tensor of an array."""
    return torch.bfloat16 if numbers.dtype == np.int16 else torch.float32


def tensor_of(numbers: NDArray[Any]) -> torch.Tensor:
    """A tensor with the array's memory."""
    return torch.from_numpy(numbers).view(kind_of(numbers))


def numbers_of(rows: torch.Tensor) -> NDArray[Any]:
    """A contiguous array with a tensor's memory, unless the tensor is not contiguous."""
    rows = rows.detach().contiguous()
    found: NDArray[Any] = (rows.view(torch.int16) if rows.dtype == torch.bfloat16 else rows).numpy()
    return found
