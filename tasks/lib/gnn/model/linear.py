"""Products of rows with a layer's matrix by oneDNN if torch has it, with bias and ReLU in one pass.

For float32 torch itself uses MKL, which multiplies without AVX-512 on processors not made by Intel: less than half as
fast.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding  # type: ignore[import-untyped]
import torch
from torch import nn
from torch.nn import functional

from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.gnn.model.short_rows import numbers_of
from superworkflow.tasks.lib.kernels.bfloat16 import BFLOAT16, FLOAT32
from superworkflow.tasks.lib.kernels.cpu_features import has
from superworkflow.tasks.lib.kernels.transposed_products import by_tiles, transposed_product

_HAS_ONEDNN: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
_HAS_BFLOAT16: bool = _HAS_ONEDNN and torch.ops.mkldnn._is_mkldnn_bf16_supported()
"""Without AVX-512 oneDNN has no products of bfloat16, and torch's own take ten times as long as those of float32, by
which the same factors are multiplied there."""
_SLOW_MKL: bool = _HAS_ONEDNN and has("avx512f") and llvmlite.binding.get_host_cpu_name().startswith("znver")
_BLOCK = 2048
"""Rows whose share of a gradient oneDNN makes at a time: it copies both factors, here to the second-level cache."""


class Linear(nn.Linear):
    """A linear layer by `product`."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return product(rows, self.weight, self.bias)


def slow_products(precision: str, device: str) -> list[InputWarning]:
    """The warning that this processor has no products of bfloat16; none where it does or they are not wanted."""
    if precision != BFLOAT16 or device != "cpu" or _HAS_BFLOAT16:
        return []
    return [InputWarning(
        "this processor has no products of bfloat16: they are made in float32, and training takes longer than without",
        "train.products", precision, f"Set train.products={FLOAT32}",
    )]  # fmt: skip


def product(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activate: bool = False,
    rectified: bool = False, precision: str = FLOAT32,
) -> torch.Tensor:  # fmt: skip
    """rows [n, d] times weight [k, d] transposed, plus bias [k].

    Args:
        rows, weight, bias: float32; rows may be bfloat16 where that is the precision, on processors.
        activate: apply ReLU.
        rectified: the reader of the result takes the ReLU's gradient; see `concat.concat_parts`.
        precision: precision of the factors; sums are float32.

    Returns:
        float32; bfloat16 if a reader that takes the ReLU's gradient will multiply it in this precision.
    """
    if rows.device.type != "cpu":
        kind = torch.bfloat16 if precision == BFLOAT16 else torch.float32
        with torch.autocast(rows.device.type, kind, enabled=precision == BFLOAT16):
            made = functional.linear(rows, weight, bias).float()
        return torch.relu(made) if activate else made
    found: torch.Tensor = _Product.apply(  # type: ignore[no-untyped-call]
        rows, weight, bias, activate, rectified, precision == BFLOAT16
    )
    return found


class _Product(torch.autograd.Function):
    """`product` on processors."""

    @staticmethod
    def forward(
        context: Any, rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activate: bool,
        rectified: bool, short: bool,
    ) -> torch.Tensor:  # fmt: skip
        context.kind, context.has_bias = rows.dtype, bias is not None
        if short:
            rows, weight = rows.bfloat16(), weight.bfloat16()
        out = _linear(rows, weight, bias.bfloat16() if short and bias is not None else bias, activate)
        context.masked = activate and not rectified
        context.save_for_backward(rows, weight, *((out,) if context.masked else ()))
        return out if activate and rectified else out.float()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        rows, weight, *out = context.saved_tensors
        given = gradients[0]
        if out:
            given = given * (out[0] > 0)
        given, matrix, bias, back = given.to(rows.dtype), None, None, None
        if context.needs_input_grad[1]:
            matrix, bias = _gradients(given, rows, context.has_bias)
        if context.needs_input_grad[0]:
            back = _linear(given, weight.t(), None, False).to(context.kind)
        return back, matrix, bias, None, None, None


def _linear(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activate: bool) -> torch.Tensor:
    if rows.dtype == torch.bfloat16 and not _HAS_BFLOAT16:
        made = _linear(rows.float(), weight.float(), bias.float() if bias is not None else None, activate)
        return made.bfloat16()
    if _HAS_ONEDNN and rows.numel() > 0:
        act = "relu" if activate else "none"
        found: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, act, [], "")
        return found
    made = functional.linear(rows, weight, bias)
    return torch.relu(made) if activate else made


def _gradients(given: torch.Tensor, rows: torch.Tensor, has_bias: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Gradients of the matrix and of the bias, float32, of the gradients of the product and its rows."""
    if rows.dtype == torch.bfloat16 and by_tiles():
        matrix, sums = transposed_product(numbers_of(given), numbers_of(rows))
        return torch.from_numpy(matrix), torch.from_numpy(sums) if has_bias else None
    bias = given.sum(0, dtype=torch.float32) if has_bias else None
    if not _HAS_BFLOAT16:
        given, rows = given.float(), rows.float()
    if _SLOW_MKL and rows.dtype == torch.float32 and rows.numel() > 0:
        return _by_blocks(given, rows), bias
    return (given.t() @ rows).float(), bias  # by oneDNN both would be copied first


def _by_blocks(given: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """given [n, k] transposed times rows [n, d], by oneDNN."""
    total = given.new_zeros((given.shape[1], rows.shape[1]))
    for first in range(0, len(rows), _BLOCK):
        own = slice(first, first + _BLOCK)
        total += _linear(given[own].t(), rows[own].t(), None, False)
    return total
