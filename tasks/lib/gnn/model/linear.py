"""Products of rows with a layer's matrix by oneDNN if torch has it, with bias and ReLU in one pass.

For float32 torch itself uses MKL, which on processors not made by Intel is less than half as fast.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning

FLOAT32, BFLOAT16 = "float32", "bfloat16"
_HAS_ONEDNN: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
_HAS_BFLOAT16: bool = _HAS_ONEDNN and torch.ops.mkldnn._is_mkldnn_bf16_supported()
"""Without AVX-512 oneDNN has no products of bfloat16, and torch's own are slower than float32."""


def slow_products(precision: str, device: str) -> list[InputWarning]:
    """The warning that this processor has no products of bfloat16; none where it does or they are not wanted."""
    if precision != BFLOAT16 or device != "cpu" or _HAS_BFLOAT16:
        return []
    return [InputWarning(
        "this processor has no products of bfloat16 and emulates them: training takes several times longer than by "
        "float32", "train.products", precision, f"Set train.products={FLOAT32}",
    )]  # fmt: skip


def product(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activate: bool = False,
    rectified: bool = False, precision: str = FLOAT32,
) -> torch.Tensor:  # fmt: skip
    """rows [n, d] times weight [k, d] transposed, plus bias [k].

    Args:
        rows, weight, bias: float32.
        activate: apply ReLU.
        rectified: the reader of the result takes the ReLU's gradient; see `concat.concat_parts`.
        precision: precision of the factors; sums are float32.
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
        if short:
            rows, weight = rows.bfloat16(), weight.bfloat16()
        out = _linear(rows, weight, bias.bfloat16() if short and bias is not None else bias, activate)
        context.masked, context.short, context.has_bias = activate and not rectified, short, bias is not None
        context.save_for_backward(rows, weight, *((out,) if context.masked else ()))
        return out.float()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        rows, weight, *out = context.saved_tensors
        given = gradients[0]
        if out:
            given = given * (out[0] > 0)
        bias = given.sum(0) if context.has_bias else None
        if context.short:
            given = given.bfloat16()
        matrix = None
        if context.needs_input_grad[1]:
            matrix = (given.t() @ rows).float()  # by oneDNN both would be copied first
        back = _linear(given, weight.t(), None, False).float() if context.needs_input_grad[0] else None
        return back, matrix, bias, None, None, None


def _linear(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activate: bool) -> torch.Tensor:
    if _fits(rows):
        act = "relu" if activate else "none"
        found: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, act, [], "")
        return found
    made = functional.linear(rows, weight, bias)
    return torch.relu(made) if activate else made


def _fits(rows: torch.Tensor) -> bool:
    return rows.numel() > 0 and (_HAS_BFLOAT16 if rows.dtype == torch.bfloat16 else _HAS_ONEDNN)
