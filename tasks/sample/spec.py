"""Sampling specs: TF-GNN's `SamplingSpec` in text format, read and checked without TensorFlow.

    seed_op { op_name: "seed" node_set_name: "paper" }
    sampling_ops {
      op_name: "cited" input_op_names: ["seed"] edge_set_name: "cites" sample_size: 32 strategy: RANDOM_UNIFORM
    }
    sampling_ops {
      op_name: "authors" input_op_names: ["seed", "cited"] edge_set_name: "written" sample_size: 8 strategy: TOP_K
    }

With `symmetric_link_seed_op { op_name: "seed" }` the seeds are pairs of nodes of the set that the auxiliary edge sets
`_readout/source` and `_readout/target` start from; without these, of the set that the first ops start from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.lib.formats.text_format import message_class, parse
from superworkflow.tasks.lib.graph.schema import read_schema
from superworkflow.tasks.lib.importers.dgl_chunked import is_chunked

STRATEGIES = ("TOP_K", "RANDOM_UNIFORM", "RANDOM_WEIGHTED", "LATEST_K")
"""By their numbers, of which the last one is not TF-GNN's."""
READOUT = "_readout"
MOST_OPS = 1000
MOST_SIZE = 2**31 - 1
MOST_BYTES = 16 << 20
_SEED_OPS = ("seed_op", "symmetric_link_seed_op")
_MESSAGES = {
    "SamplingSpec": "seed_op: seed_op, symmetric_link_seed_op: symmetric_link_seed_op, sampling_ops: SamplingOp*",
    "seed_op": "op_name: string, node_set_name: string",
    "symmetric_link_seed_op": "op_name: string",
    "SamplingOp": "op_name: string, input_op_names: string*, edge_set_name: string, sample_size: int64, "
    "strategy: strategy",
}


class EdgeSetEndpoints(Protocol):
    """Endpoints of an edge set, as a spec needs them."""

    @property
    def source(self) -> str: ...
    @property
    def target(self) -> str: ...


@dataclass(frozen=True)
class Op:
    """One hop: from each node that the inputs have led to, at most `size` of its edges.

    Args:
        name: of the op.
        inputs: names of ops before it, or of the seed op.
        edge_set: whose edges.
        size: most edges of a node.
        strategy: one of `STRATEGIES`.
    """

    name: str
    inputs: tuple[str, ...]
    edge_set: str
    size: int
    strategy: str


@dataclass(frozen=True)
class SamplingSpec:
    """A sampling spec.

    Args:
        where: its file, for errors.
        seed_op: name of the op that gives the seeds.
        node_set: of the seeds; empty for links before `fitted`.
        is_link: whether a seed is a pair of nodes.
        ops: the hops, each after its inputs.
    """

    where: str
    seed_op: str
    node_set: str
    is_link: bool
    ops: tuple[Op, ...]

    def canonical(self) -> dict[str, Any]:
        """The spec as JSON values."""
        ops = [
            {
                "op_name": op.name, "input_op_names": list(op.inputs), "edge_set_name": op.edge_set,
                "sample_size": op.size, "strategy": op.strategy,
            }
            for op in self.ops
        ]  # fmt: skip
        kind = _SEED_OPS[self.is_link]
        return {kind: {"op_name": self.seed_op, "node_set_name": self.node_set}, "sampling_ops": ops}

    def sized(self, factor: float, sizes: Mapping[str, int]) -> SamplingSpec:
        """With sample sizes multiplied, at least 1, and those of some ops given.

        Raises:
            UserError: there is no op of a name.
        """
        names = [op.name for op in self.ops]
        for name in sizes:
            if name not in names:
                raise UserError(
                    "the spec has no such op", where="sample.sizes", value=name, remedy=nearest(name, names)
                )  # fmt: skip
        ops = (replace(op, size=sizes.get(op.name, min(MOST_SIZE, max(1, round(op.size * factor))))) for op in self.ops)
        return replace(self, ops=tuple(ops))

    def fitted(self, node_sets: Iterable[str], edge_sets: Mapping[str, EdgeSetEndpoints]) -> SamplingSpec:
        """The spec for a graph that has these sets, with the node set of its seeds.

        Raises:
            UserError: names the op whose set the graph does not have, or whose inputs lead elsewhere than its edges
                start.
        """
        names = list(node_sets)
        for op in self.ops:
            if op.edge_set not in edge_sets:
                raise self._fault(op.name, "the graph has no such edge set", op.edge_set, list(edge_sets))
        seeds = self.node_set or self._seed_set(edge_sets)
        if seeds not in names:
            raise self._fault(self.seed_op, "the graph has no such node set", seeds, names)
        leads = {self.seed_op: seeds}
        for op in self.ops:
            edges = edge_sets[op.edge_set]
            for given in op.inputs:
                if leads[given] != edges.source:
                    raise UserError(
                        f"{op.edge_set!r} starts from {edges.source!r}, and input op {given!r} does not lead there",
                        where=f"{self.where}, op {op.name}", value=leads[given],
                        remedy="Give inputs that lead to where the edges start, or the reversed edge set",
                    )  # fmt: skip
            leads[op.name] = edges.target
        return replace(self, node_set=seeds)

    def _seed_set(self, edge_sets: Mapping[str, EdgeSetEndpoints]) -> str:
        readout = [edge_sets[name].source for name in (f"{READOUT}/source", f"{READOUT}/target") if name in edge_sets]
        starts = readout or [edge_sets[op.edge_set].source for op in self.ops if self.seed_op in op.inputs]
        if len(set(starts)) != 1:
            raise UserError(
                "both nodes of a link seed are of one node set", where=f"{self.where}, op {self.seed_op}",
                value=sorted(set(starts)),
                remedy=f"Let {READOUT}/source and {READOUT}/target start from the same node set",
            )  # fmt: skip
        return starts[0]

    def _fault(self, op: str, what: str, value: str, valid: list[str]) -> UserError:
        return UserError(what, where=f"{self.where}, op {op}", value=value, remedy=nearest(value, valid))


def check_spec(source: Source, graph: Source | None, sizes: Mapping[str, int]) -> None:
    """Refuse a spec that is none, or that does not fit its graph, before the graph is made.

    Args:
        source: the spec.
        graph: description of a typed graph; sets of an edge list, and of DGL's format, are not looked at.
        sizes: of some ops, by name.

    Raises:
        UserError: names the line or the op that is wrong.
    """
    spec = read_spec(source).sized(1.0, sizes)
    if graph is not None and not is_chunked(text := graph.location.read_text()):
        schema = read_schema(text, graph.uri)
        spec.fitted(schema.node_sets, schema.edge_sets)


def read_spec(source: Source, scratch: Path | None = None) -> SamplingSpec:
    """The spec in a source.

    Args:
        source: the spec.
        scratch: folder for a copy whose sum is checked; without one the source is read where it is.

    Raises:
        UserError: it is none.
    """
    where = source.location.name
    if source.total_bytes > MOST_BYTES:
        raise UserError("the file is too large for a sampling spec", where=where, value=source.total_bytes)
    try:
        return parse_spec((Location.of(source.local(scratch)) if scratch else source.location).read_text(), where)
    except UnicodeDecodeError:
        raise UserError("the sampling spec is not UTF-8", where=where, remedy="Save it as UTF-8") from None


def parse_spec(text: str, where: str) -> SamplingSpec:
    """The spec in a text.

    Args:
        text: of the file.
        where: its name for people.

    Raises:
        UserError: names the line or the op that is wrong.
    """
    message = _spec_class()()
    parse(text, where, message, lambda: f", op {message.sampling_ops[-1].op_name}")
    given = [name for name in _SEED_OPS if message.HasField(name)]
    if len(given) != 1:
        raise UserError(
            "a spec has one seed op", where=where, value=given, remedy=f"Give {_SEED_OPS[0]} or {_SEED_OPS[1]}"
        )  # fmt: skip
    seed, is_link = getattr(message, given[0]), given[0] == _SEED_OPS[1]
    name = _name_of(seed, given[0], where)
    node_set = "" if is_link else seed.node_set_name
    if not is_link and not node_set:
        raise UserError("the seed op has no node set", where=f"{where}:{seed.line}", value=name,
                        remedy="Give it a node_set_name")  # fmt: skip
    if len(message.sampling_ops) > MOST_OPS:
        raise UserError(f"a spec has at most {MOST_OPS} ops", where=where, value=len(message.sampling_ops),
                        remedy="Give fewer")  # fmt: skip
    defined, ops = {name}, []
    names = [each.op_name for each in message.sampling_ops]
    for each in message.sampling_ops:
        op = _op_of(each, defined, names, where)
        defined.add(op.name)
        ops.append(op)
    return SamplingSpec(where, name, node_set, is_link, tuple(ops))


@cache
def _spec_class() -> Any:
    return message_class("SamplingSpec", _MESSAGES, {"strategy": STRATEGIES})


def _name_of(message: Any, kind: str, where: str) -> str:
    if not message.op_name:
        raise UserError("the op has no name", where=f"{where}:{message.line}", value=kind, remedy="Give it an op_name")
    return str(message.op_name)


def _op_of(message: Any, defined: set[str], names: list[str], where: str) -> Op:
    """One of the sampling ops; names of the ops before it are in `defined`."""
    name = _name_of(message, "sampling_ops", where)
    where = f"{where}:{message.line}, op {name}"
    if name in defined:
        raise UserError("there are two ops of this name", where=where, value=name, remedy="Rename one of them")
    inputs = tuple(dict.fromkeys(message.input_op_names))
    if not inputs:
        raise UserError("the op has no inputs", where=where, remedy="Give it input_op_names")
    for given in inputs:
        if given not in defined:
            later = given in names
            raise UserError(
                "an input op comes later, or is the op itself" if later else "there is no such input op",
                where=where, value=given,
                remedy="Order the ops so that each is after its inputs" if later else nearest(given, sorted(defined)),
            )  # fmt: skip
    if not message.edge_set_name:
        raise UserError("the op has no edge set", where=where, remedy="Give it an edge_set_name")
    size = message.sample_size
    if not 0 < size <= MOST_SIZE:
        raise UserError("sample_size is at least 1", where=where, value=size, remedy="Give how many edges to sample")
    return Op(name, inputs, message.edge_set_name, size, STRATEGIES[message.strategy])
