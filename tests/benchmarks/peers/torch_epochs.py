"""Epochs of a peer's two layers on a whole graph, one thread, as a measured process.

A script MODEL VERTICES ARCS DROPOUT that calls `serve_epochs` answers      {"side": …} -> {"wall_s", "cpu_s"}
"""

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from epoch_graph import RATE
from serving import Clock, serve
from torch.nn.functional import cross_entropy, dropout, elu

torch.set_num_threads(1)


class Layers(NamedTuple):
    """Two layers over a graph, each a function of all rows; what the first one reads; and classes of the vertices."""

    first: Callable[[torch.Tensor], torch.Tensor]
    second: Callable[[torch.Tensor], torch.Tensor]
    modules: Iterable[torch.nn.Module]
    rows: torch.Tensor
    wanted: torch.Tensor


def serve_epochs(layers_of: Callable[[str, int, int, float], Layers]) -> None:
    """Train what this function makes of model, vertices, arcs and dropout, an epoch for each request."""
    model, vertices, arcs, share = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    activate, made = torch.relu if model == "gcn" else elu, dict[str, Callable[[], float]]()

    def prepare() -> dict[str, Any]:
        torch.manual_seed(1)
        layers = layers_of(model, vertices, arcs, share)
        optimizer = torch.optim.Adam([each for one in layers.modules for each in one.parameters()], lr=RATE)

        def epoch() -> float:
            inner = activate(layers.first(dropout(layers.rows, share)))
            loss = cross_entropy(layers.second(dropout(inner, share)), layers.wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return float(loss.detach())

        made["epoch"] = epoch
        return {"losses": [epoch(), epoch()]}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        with Clock() as clock:
            made["epoch"]()
        return clock.seconds()

    serve(answer, prepare)
