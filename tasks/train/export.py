"""Weights under the names of torch_geometric's models: `GraphSAGE`, `GCN` and `GAT`.

The file loads with ``model.load_state_dict(safetensors.torch.load_file(path))`` into

    GraphSAGE(width, hidden, layers, out)        # of the aggregator pool: aggr="max", project=True
    GCN(width, hidden, layers, out)
    GAT(width, hidden, layers, out, heads=heads, act="elu")    # of gatv2: v2=True

with ``norm=BatchNorm(hidden)`` or ``LayerNorm(hidden, mode="node")``, and ``jk="cat"``, where the network has these.
Messages go along ``edge_index = [senders, receivers]``. The last layer of our `gat` and `gatv2` has one head; that of
`GAT` is given as many equal ones, of which it takes the mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.formats.safetensors import read_tensors, write_tensors
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig, read_shape

_WEIGHTS_FILE = "model.safetensors"
Weights = dict[str, NDArray[Any]]


def write_pyg(dataset: Dataset, path: Path) -> None:
    """Write the weights of a train dataset as safetensors.

    Args:
        dataset: it.
        path: file to write.

    Raises:
        UserError: torch_geometric has no model of this kind.
    """
    shape = read_shape(dataset)
    if shape.residual or shape.model == "gin":
        raise UserError(
            "torch_geometric's models have no residuals, and its GIN norms at other places", where="export",
            value="train.residual=true" if shape.residual else shape.model,
            remedy="Export a sage, gcn, gat or gatv2 that was trained without train.residual",
        )  # fmt: skip
    if shape.code:
        raise UserError("a module of one's own has no name in torch_geometric", where="export", value=shape.model,
                        remedy="Load model.safetensors into the module itself, without `own.module.`")  # fmt: skip
    if shape.model in ("rgcn", "rgat") or len(shape.relations) > 1 or shape.embedded():
        raise UserError(
            "torch_geometric has no model for a typed graph, or one whose nodes learn embeddings", where="export",
            value=shape.model, remedy="Export another model of a graph of one kind whose nodes have features",
        )  # fmt: skip
    write_tensors(path, pyg_weights(read_tensors(dataset.local(_WEIGHTS_FILE)), shape), {"format": "pt"})


def pyg_weights(own: Mapping[str, NDArray[Any]], shape: NetworkConfig) -> Weights:
    """Weights of a network by torch_geometric's names."""
    found: Weights = {}
    for layer in range(shape.layers):
        mine, theirs = f"layers.{layer}.", f"convs.{layer}."
        number = shape.relations[0].number
        if shape.model == "sage":
            found[f"{theirs}lin_l.weight"] = own[f"{mine}neighbours.{number}.weight"]
            found[f"{theirs}lin_l.bias"] = own[f"{mine}own.0.bias"]
            found[f"{theirs}lin_r.weight"] = own[f"{mine}own.0.weight"]
            if shape.aggregator == "pool":
                found |= {f"{theirs}lin.{part}": own[f"{mine}pools.{number}.{part}"] for part in ("weight", "bias")}
        elif shape.model == "gcn":
            found[f"{theirs}lin.weight"] = own[f"{mine}linear.weight"]
            found[f"{theirs}bias"] = own[f"{mine}linear.bias"]
        elif shape.model == "gatv2":
            copies = 1 if shape.is_hidden(layer) else shape.heads
            found[f"{theirs}att"] = np.tile(own[f"{mine}scores"], (copies, 1))[None]
            found[f"{theirs}bias"] = own[f"{mine}bias"]
            for name, end in (("lin_l", "of_senders"), ("lin_r", "of_receivers")):
                found[f"{theirs}{name}.weight"] = np.tile(own[f"{mine}{end}.weight"], (copies, 1))
                found[f"{theirs}{name}.bias"] = np.tile(own[f"{mine}{end}.bias"], copies)
        else:
            copies = 1 if shape.is_hidden(layer) else shape.heads
            found[f"{theirs}att_src"] = np.tile(own[f"{mine}of_senders"], (copies, 1))[None]
            found[f"{theirs}att_dst"] = np.tile(own[f"{mine}of_receivers"], (copies, 1))[None]
            found[f"{theirs}lin.weight"] = np.tile(own[f"{mine}linear.weight"], (copies, 1))
            found[f"{theirs}bias"] = own[f"{mine}bias"]
        if f"{mine}edges.weight" in own:
            found[f"{theirs}lin_edge.weight"] = np.tile(own[f"{mine}edges.weight"], (copies, 1))
            if shape.model == "gat":
                found[f"{theirs}att_edge"] = np.tile(own[f"{mine}of_edges"], (copies, 1))[None]
    inner = "module." if shape.norm == "batch" else ""
    for name, values in own.items():
        if name.startswith("norms."):
            _, place, _, part = name.split(".")
            found[f"norms.{place}.{inner}{part}"] = values
            if part == "running_mean":
                found[f"norms.{place}.{inner}num_batches_tracked"] = np.zeros((), np.int64)
        elif name.startswith("head."):
            found[name.replace("head", "lin")] = values
    return found
