"""First weights of SAGE, as those of torch_geometric, and of R-GCN: the first loss is about log(classes)."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from superworkflow.tasks.lib.gnn.model.config import CLASSIFICATION, Head, NetworkConfig
from superworkflow.tasks.lib.gnn.model.layers import SageLayer
from superworkflow.tasks.lib.gnn.model.network import Network, NetworkInputs
from superworkflow.tasks.lib.gnn.relations import Relation
from superworkflow.tasks.lib.gnn.sampler.kernels import ALL_NEIGHBORS
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import Draws, NeighborSampler
from superworkflow.tasks.lib.graph.heterograph import CsrRows

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


def first_loss(model: str, bases: int, sets: int, edges: int, width: int) -> float:
    """Loss of step 0 of four classes, less log(classes).

    Args:
        model, bases: of the network.
        sets: number of edge sets.
        edges: of each set, that begin at random nodes or, as many as nodes, at each of them.
        width: of normal features; 0 for learned embeddings.
    """
    rng, nodes = np.random.default_rng(bases), 500
    head = Head(CLASSIFICATION, ("node",), 4, ("a", "b", "c", "d"), "node.label")
    relations = tuple(Relation(number, f"e{number}", "node", "node") for number in range(sets))
    rows = {}
    for each in relations:
        begins = np.arange(nodes) if edges == nodes else np.sort(rng.integers(0, nodes, edges))
        starts = np.searchsorted(begins, np.arange(nodes + 1))
        rows[each.number] = CsrRows(starts.astype(np.int64), rng.integers(0, nodes, edges).astype(np.int32))
    shape = NetworkConfig(model, "mean", 2, 64, 2, bases, head, {"node": nodes}, {"node": width}, relations)
    draws = Draws(shape.levels(), (ALL_NEIGHBORS, ALL_NEIGHBORS), False, frozenset(), 1)
    batch = NeighborSampler(rows, shape.nodes, draws).batch({"node": np.arange(nodes)}, 0)
    features = {"node": rng.normal(size=(nodes, width)).astype(np.float32)} if width else {}
    with torch.no_grad():
        made = Network(shape, 1)(batch, NetworkInputs(features))["node"]
    loss = functional.cross_entropy(made, torch.from_numpy(rng.integers(0, 4, nodes)))
    return abs(float(loss) - math.log(4))


@pytest.mark.parametrize("bases", [0, 30])
def test_loss_of_step_0_of_many_edge_sets(bases: int) -> None:
    """Ninety edge sets, of which each node has an edge in thirteen, and learned embeddings."""
    assert first_loss("rgcn", bases, 90, 75, 0) < 0.03


@pytest.mark.parametrize(("model", "bases", "most"), [("rgcn", 0, 0.3), ("rgcn", 4, 0.5), ("rgat", 0, 2.0)])
def test_loss_of_step_0_does_not_grow_with_the_number_of_edge_sets(model: str, bases: int, most: float) -> None:
    """Each node has an edge in each of twenty sets."""
    assert first_loss(model, bases, 20, 500, 50) < most
