"""First weights of SAGE, as torch_geometric's SAGEConv takes them: the loss of step 0 is about log(classes)."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from superworkflow.tasks.lib.gnn.model.config import CLASSIFICATION, Head, NetworkConfig
from superworkflow.tasks.lib.gnn.model.layers import SageLayer
from superworkflow.tasks.lib.gnn.relations import Relation

CLASSES, WIDTH, NODES = 10, 767, 400


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_loss_of_step_0_on_binary_features(seed: int) -> None:
    torch.manual_seed(seed)
    classes = tuple(str(each) for each in range(CLASSES))
    head = Head(CLASSIFICATION, ("node",), CLASSES, classes, "node.label")
    relations = (Relation(0, "edge", "node", "node"),)
    shape = NetworkConfig("sage", "mean", 2, 64, 1, 0, head, {"node": NODES}, {"node": WIDTH}, relations)
    rows = (torch.rand(NODES, WIDTH) < 0.3).float()
    links = (torch.rand(NODES, NODES) < 0.02).float()
    means = links / links.sum(1, keepdim=True).clamp(min=1)
    for number, level in enumerate(shape.levels()):
        layer = SageLayer(shape, number, level)
        own, neighbours = layer.own["0"], layer.neighbours["0"]
        rows = own(rows) + neighbours(means @ rows)
        rows = torch.relu(rows) if number == 0 else rows
    loss = functional.cross_entropy(rows, torch.randint(CLASSES, (NODES,)))
    assert abs(float(loss.detach()) - math.log(CLASSES)) < 0.1
