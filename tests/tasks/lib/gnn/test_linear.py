"""Products of float32 and their gradients equal those of float64, by MKL and by oneDNN in blocks."""

import pytest
import torch

from superworkflow.tasks.lib.gnn.model import linear


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("count", [0, 1, linear._BLOCK, 2 * linear._BLOCK + 5])
@pytest.mark.parametrize("activate", [False, True])
def test_products_and_gradients(monkeypatch, blocks, count, activate):
    monkeypatch.setattr(linear, "_SLOW_MKL", blocks)
    torch.manual_seed(count)
    given = torch.randn(count, 19), torch.randn(7, 19), torch.randn(7), torch.randn(count, 7)
    found = []
    for kind in (torch.float32, torch.float64):
        rows, weight, bias, change = (each.to(kind, copy=True).requires_grad_() for each in given)
        if kind == torch.float32:
            made = linear.product(rows, weight, bias, activate)
        else:
            made = rows @ weight.T + bias
            made = torch.relu(made) if activate else made
        made.backward(change.detach())
        found.append([each.detach().numpy() for each in (made, rows.grad, weight.grad, bias.grad)])
    for ours, wanted in zip(*found, strict=True):
        assert ours == pytest.approx(wanted, rel=1e-4, abs=1e-4 * max(1, count**0.5))
