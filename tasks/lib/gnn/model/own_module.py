"""Modules of one's own: what their constructors and `forward` are given, and what these must return.

A class is constructed with those of these arguments that it names: `in_channels` (width of the features; with several
node sets a mapping by node set), `hidden_channels`, `out_channels` (width of the result), `num_layers`, `heads`, and
`metadata` (names of node sets, and keys of edge sets, as torch_geometric's typed models take it).

`forward` names its arguments too, and gives rows [nodes, out_channels] of at least the targets, which are the first
nodes; with several node sets a mapping by node set:

- `forward(x, edge_index)`, as in torch_geometric: rows of all nodes of a batch, float32, and all its edges as
  [2, edges], int64, senders first. A node's edges are those of the hop that found it.
- `forward(x_dict, edge_index_dict)`: the same by node set, and by (senders' set, edge set, receivers' set).
- `forward(x, blocks)`: rows of the nodes that the first layer reads, and a `ModelBlock` for each layer, in order.

A further argument `edge_weight` of the first form has the weights of the edges. Random numbers that a module takes from
torch are a function of the step.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.code_file import CodeFile, code_of_text, fault_of, run_code
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.gnn.relations import Relation
from superworkflow.tasks.lib.gnn.sampler.block import Block, MiniBatch

WHERE = "train.model"
FORMS = ({"x", "edge_index"}, {"x_dict", "edge_index_dict"}, {"x", "blocks"})
EdgeKey = tuple[str, str, str]


class ModelBlock(NamedTuple):
    """Edges of one layer; with several node or edge sets each field is a mapping, by node set or by (senders' set, edge
    set, receivers' set).

    Args:
        edge_index: drawn edges, int64 [2, edges]: rows of senders, rows of receivers.
        receivers: number of nodes that the layer makes rows of, the first ones of those that it reads.
        degrees: all edges of each receiver, drawn or not, int64 [receivers].
        edge_weight: weights of the edges, float32 [edges]; None without `train.weight`.
    """

    edge_index: Any
    receivers: Any
    degrees: Any
    edge_weight: Any


class OwnModule(nn.Module):
    """A module of one's own with the interface of a network.

    Args:
        shape: configuration of the network, with `code`.

    Raises:
        UserError: the file or the class fails, or is no such module.
    """

    def __init__(self, shape: NetworkConfig):
        super().__init__()
        self._shape, self._plain = shape, len(shape.nodes) == 1 and len(shape.relations) == 1
        self._file, _, self._class = shape.model.rpartition(":")
        self._keys: dict[int, EdgeKey] = {each.number: _key(each) for each in shape.relations}
        self.module = self._made(code_of_text(self._file, shape.code))
        taken = inspect.signature(self.module.forward).parameters
        self._named = set(taken)
        if not any(form <= self._named for form in FORMS):
            raise self._refused("forward takes none of the forms of arguments", ", ".join(sorted(self._named)),
                                "Write forward(self, x, edge_index), forward(self, x_dict, edge_index_dict) or "
                                "forward(self, x, blocks)")  # fmt: skip
        given = {"edge_weight"}.union(*FORMS)
        if unknown := [
            each.name for each in taken.values()
            if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
            and each.default is each.empty and each.name not in given
        ]:  # fmt: skip
            raise self._refused("forward has arguments that are not given", ", ".join(unknown), "Give them defaults")
        if "edge_index" in self._named and not self._plain:
            raise self._refused("the graph has several node or edge sets", "forward(x, edge_index)",
                                "Write forward(self, x_dict, edge_index_dict) or forward(self, x, blocks)")  # fmt: skip
        weights = list(self.module.parameters())
        if not weights or any(each.dtype != torch.float32 for each in weights):
            raise self._refused("the module has no weights, or others than float32", len(weights),
                                "Give it parameters of float32")  # fmt: skip

    def forward(
        self, batch: MiniBatch, rows: Mapping[str, torch.Tensor], weights: Mapping[int, NDArray[np.float32]]
    ) -> dict[str, torch.Tensor]:
        """Rows of the targets by node set, float32 [targets, width of the head].

        Args:
            batch: targets and blocks.
            rows: rows of the first block's senders, by node set.
            weights: weights of all edges by number of the edge set, where they are not in the blocks.

        Raises:
            UserError: the module fails, or its result is of another form or not finite.
        """
        device = next(self.module.parameters()).device
        blocks = [self._edges(block, weights, device) for block in batch.blocks]
        self.module.train(torch.is_grad_enabled())
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(batch.blocks[0].state >> 1)
            try:
                made = self.module(**self._arguments(batch, dict(rows), blocks))
            except Exception as error:
                if (fault := fault_of(error)) is not None:
                    raise fault from error
                raise
        return self._checked(made, batch)

    def _arguments(self, batch: MiniBatch, rows: dict[str, torch.Tensor], blocks: list[_Edges]) -> dict[str, Any]:
        """Arguments of the module's `forward`."""
        if "blocks" in self._named:
            return {"x": self._only(rows), "blocks": [self._block(*each) for each in zip(batch.blocks, blocks,
                                                                                       strict=True)]}  # fmt: skip
        index, weight = self._union(batch, blocks)
        if "edge_index_dict" in self._named:
            return {"x_dict": rows, "edge_index_dict": index}
        ((key, edges),) = index.items()
        weighted = {"edge_weight": weight[key]} if "edge_weight" in self._named else {}
        return {"x": self._only(rows), "edge_index": edges, **weighted}

    def _union(
        self, batch: MiniBatch, blocks: list[_Edges]
    ) -> tuple[dict[EdgeKey, torch.Tensor], dict[EdgeKey, torch.Tensor | None]]:
        """Edges of all blocks, of each receiver those of the innermost block that has it."""
        index: dict[EdgeKey, list[torch.Tensor]] = {key: [] for key in self._keys.values()}
        weight: dict[EdgeKey, list[torch.Tensor]] = {key: [] for key in self._keys.values()}
        found: Mapping[str, NDArray[np.int64]] = {}
        for block, edges in zip(reversed(batch.blocks), reversed(blocks), strict=True):
            for key, (pairs, weights) in edges.items():
                new = pairs[1] >= len(found.get(key[2], ()))
                index[key].append(pairs[:, new])
                if weights is not None:
                    weight[key].append(weights[new])
            found = block.receivers
        device = next(self.module.parameters()).device
        none = torch.empty(2, 0, dtype=torch.int64, device=device)
        return (
            {key: torch.cat([none, *parts], 1) for key, parts in index.items()},
            {key: torch.cat(parts) if parts else None for key, parts in weight.items()},
        )

    def _edges(self, block: Block, weights: Mapping[int, NDArray[np.float32]], device: torch.device) -> _Edges:
        """Edges of a block and their weights, by key of the edge set."""
        found: _Edges = {}
        for number, hop in block.hops.items():
            receivers = np.repeat(np.arange(len(hop.degrees)), np.diff(hop.starts))
            pairs = torch.from_numpy(np.stack([hop.senders.astype(np.int64), receivers])).to(device)
            own = weights[number][hop.positions] if number in weights else hop.weights
            found[self._keys[number]] = pairs, None if own is None else torch.from_numpy(np.array(own)).to(device)
        return found

    def _block(self, block: Block, edges: _Edges) -> ModelBlock:
        degrees = {self._keys[number]: torch.from_numpy(hop.degrees) for number, hop in block.hops.items()}
        return ModelBlock(
            self._only({key: pairs for key, (pairs, _) in edges.items()}),
            self._only({name: len(nodes) for name, nodes in block.receivers.items()}),
            self._only(degrees), self._only({key: weights for key, (_, weights) in edges.items()}),
        )  # fmt: skip

    def _only(self, values: dict[Any, Any]) -> Any:
        return next(iter(values.values())) if self._plain else values

    def _checked(self, made: Any, batch: MiniBatch) -> dict[str, torch.Tensor]:
        if isinstance(made, torch.Tensor) and len(self._shape.head.node_sets) == 1:
            made = {self._shape.head.node_sets[0]: made}
        wanted = {name: len(nodes) for name, nodes in batch.targets.items() if len(nodes)}
        if not isinstance(made, dict) or not wanted.keys() <= made.keys():
            found = ", ".join(map(str, made)) if isinstance(made, dict) else type(made).__name__
            raise self._refused("the result is no rows of the targets", found,
                                f"Return rows of {', '.join(wanted)}, by node set if there are several")  # fmt: skip
        width, rows = self._shape.head.width, {}
        for name, count in wanted.items():
            values = made[name]
            if (
                not isinstance(values, torch.Tensor)
                or values.ndim != 2
                or values.shape[1] != width
                or len(values) < count
            ):
                found = str(list(values.shape)) if isinstance(values, torch.Tensor) else type(values).__name__
                raise self._refused(f"the result has another shape than [at least {count}, {width}]", found,
                                    "Return a row of width out_channels for each node, targets first")  # fmt: skip
            rows[name] = values[:count].float()
            if not bool(torch.isfinite(rows[name].detach()).all()):
                bad = int((~torch.isfinite(rows[name].detach())).any(1).sum())
                raise self._refused("the result is not finite", f"{bad} of {count} rows",
                                    "Look for divisions by zero, such as by degrees, and for logarithms; else lower "
                                    "train.learning_rate")  # fmt: skip
        return rows

    def _made(self, code: CodeFile) -> nn.Module:
        """The module, constructed."""
        shape = self._shape
        made = getattr(run_code(code), self._class, None)
        if not (isinstance(made, type) and issubclass(made, nn.Module)):
            raise self._refused("this is no subclass of torch.nn.Module", self._class, "Derive the class from it")
        widths = {name: shape.width_in(0, name) for name in shape.nodes}
        arguments = {
            "in_channels": self._only(widths), "hidden_channels": shape.hidden, "out_channels": shape.head.width,
            "num_layers": shape.layers, "heads": shape.heads,
            "metadata": (list(shape.nodes), list(self._keys.values())),
        }  # fmt: skip
        taken = inspect.signature(made.__init__).parameters.values()
        plain = [each for each in list(taken)[1:] if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
        unknown = [each.name for each in plain if each.default is each.empty and each.name not in arguments]
        if unknown:
            raise self._refused("the constructor has arguments that are not given", ", ".join(unknown),
                                f"Give them defaults, or use {', '.join(arguments)}")  # fmt: skip
        try:
            return made(**{each.name: arguments[each.name] for each in plain if each.name in arguments})
        except Exception as error:
            if (fault := fault_of(error)) is not None:
                raise fault from error
            raise

    def _refused(self, what: str, value: object, remedy: str) -> UserError:
        return UserError(f"{self._class} in {self._file}: {what}", where=WHERE, value=value, remedy=remedy)


_Edges = dict[EdgeKey, tuple[torch.Tensor, torch.Tensor | None]]


def _key(relation: Relation) -> EdgeKey:
    return relation.senders, relation.name, relation.receivers
