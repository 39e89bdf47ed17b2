"""Scopes and neighbours as Numba's types: what a program may not write does not compile.

A scope is a vertex with the addresses of what the run reads and writes, by value; the compiler keeps what is used of it
in registers. Addresses are those of arrays in the `State`, which outlives all scopes.
"""

# mypy: ignore-errors, since Numba's extension API has no types.

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.errors import TypingError
from numba.core.imputils import lower_getattr_generic, lower_setattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, overload_method, register_jitable, register_model

from superworkflow.tasks.lib.kernels.random import GAMMA, mix, uniform
from superworkflow.tasks.lib.vertex.field_access import (
    array_at,
    bring_field,
    element_of,
    field_type,
    load_field,
    store_field,
)
from superworkflow.tasks.lib.vertex.verify import record_access, record_index

INIT = "init"
"""In place of a program's consistency, that of `init`."""


class State(NamedTuple):
    """Arrays that updates read and write.

    Args:
        indptr: int64 [vertices + 1] of out-edges; of all edges in an undirected graph.
        indices: int32 [arcs], targets of out-edges.
        weights: float32 [arcs], or [0].
        in_indptr: int64 [vertices + 1] of in-edges; the same array as of out-edges if undirected.
        in_indices: int32 [arcs], sources of in-edges.
        in_weights: float32 [arcs], or [0].
        slots: uint32 [arcs], places of the arcs' edges, see `slots.edge_slots`; [0] if the program has no edge fields.
        in_slots: the same of in-edges; the same array if undirected.
        numbers: int32 [vertices], what programs see as the number of each vertex: all arrays here are by place.
        signals: int32 [vertices], bits of the float32 priority of each vertex; 0 for none.
        largest: int32 [vertices / 64, rounded up], the largest signal of each 64 places.
        globals: float64 [syncs], values of the whole graph.
        checks: int64, marks of accesses, see `verify`; [0] if none are recorded.
        seed: of random numbers, uint64.
        step: number of the step, int64.
        vertices: of the whole graph, int64.
        fields: of vertices, [vertices] or [vertices, length], in the schema's order; updates write their own.
        seen: the same to read of neighbours: the same memory, or a copy from before the step.
        edges: fields of edges, [edges] or [edges, length].
        messages: fields of the directions of edges, [2 * edges] or [2 * edges, length].
        received: the same to read of the direction towards a vertex: the same memory, or a copy.
        rows: rows of any length that the graph gives, those of all vertices one after the other.
        starts: int64 [vertices + 1] for each of `rows`, where each vertex's row begins.
    """

    indptr: Any
    indices: Any
    weights: Any
    in_indptr: Any
    in_indices: Any
    in_weights: Any
    slots: Any
    in_slots: Any
    numbers: Any
    signals: Any
    largest: Any
    globals: Any
    checks: Any
    seed: Any
    step: Any
    vertices: Any
    fields: tuple[Any, ...]
    seen: tuple[Any, ...]
    edges: tuple[Any, ...]
    messages: tuple[Any, ...]
    received: tuple[Any, ...]
    rows: tuple[Any, ...]
    starts: tuple[Any, ...]


class Schema(NamedTuple):
    """Names that scopes have besides their own.

    Args:
        fields: name, NumPy type and length of each field, in the order of `State.fields`; 0 for a scalar.
        syncs: names in the order of `State.globals`.
        consistency: vertex, edge or full; `INIT` in `init`.
        directed: in-edges are other arrays than out-edges.
        weighted: edges have weights.
        edges: fields of edges, as `fields`.
        messages: fields of the directions of edges, as `fields`.
        rows: read-only rows of vertices, as `fields`; each is as long as the graph says.
        sizes: lengths of the syncs' values, 0 of single numbers.
        checked: the execution whose accesses are recorded; empty if none are.
        given: fields that have their values before `init`.
    """

    fields: tuple[tuple[str, str, int], ...]
    syncs: tuple[str, ...]
    consistency: str
    directed: bool
    weighted: bool
    edges: tuple[tuple[str, str, int], ...] = ()
    messages: tuple[tuple[str, str, int], ...] = ()
    rows: tuple[tuple[str, str, int], ...] = ()
    sizes: tuple[int, ...] = ()
    checked: str = ""
    given: tuple[str, ...] = ()

    def sync(self, name: str) -> tuple[int, int]:
        """Place at which a sync's value begins in `State.globals`, and its length, 0 of a single number."""
        number = self.syncs.index(name)
        return sum(max(1, size) for size in self.sizes[:number]), self.sizes[number]

    @property
    def starts(self) -> tuple[tuple[str, str, int], ...]:
        """Begins of the rows, as `fields`."""
        return tuple((name, "int64", 0) for name, _, _ in self.rows)

    @property
    def of_init(self) -> Schema:
        """Names in `init`: it sets fields of edges in any case, and reads what neighbours are given, the rest of which
        may not be set."""
        return self._replace(consistency=INIT, checked="")

    def field(self, name: str) -> int:
        """Number of a field; -1 if there is none of this name."""
        return next((number for number, each in enumerate(self.fields) if each[0] == name), -1)

    def row(self, name: str) -> int:
        """Number of one of `rows`; -1 if there is none of this name."""
        return next((number for number, each in enumerate(self.rows) if each[0] == name), -1)


_POINTERS = {
    "indptr": types.int64, "indices": types.int32, "weights": types.float32, "in_indptr": types.int64,
    "in_indices": types.int32, "in_weights": types.float32, "slots": types.uint32, "in_slots": types.uint32,
    "numbers": types.int32, "signals": types.int32, "largest": types.int32, "globals": types.float64,
    "checks": types.int64,
}  # fmt: skip
_AHEAD = 8
"""Neighbours by which vectors are brought into the cache before they are read."""
_VECTOR = types.Array(types.float64, 1, "C", readonly=True)
_NUMBERS = ("vertex", "vertices", "step", "degree", "out_degree", "in_degree")


class ScopeType(types.Type):
    """A vertex that is updated (`own`), or one of its neighbours."""

    def __init__(self, schema: Schema, own: bool):
        self.schema, self.own = schema, own
        super().__init__(name=f"{'scope' if own else 'neighbour'}({schema})")

    @property
    def writes(self) -> bool:
        return self.own or self.schema.consistency == "full"

    @property
    def reads(self) -> bool:
        return self.own or self.schema.consistency != "vertex"


@register_model(ScopeType)
class _ScopeModel(models.StructModel):
    def __init__(self, manager: Any, kind: ScopeType):
        members = [(name, types.int64) for name in ("vertex", "later", "vertices", "step")] + [("seed", types.uint64)]
        members += [(name, types.CPointer(dtype)) for name, dtype in _POINTERS.items()]
        super().__init__(manager, kind, members + field_pointers(kind.schema))


_GROUPS = {
    "fields": "fields", "seen": "fields", "edges": "edges", "messages": "messages", "received": "messages",
    "rows": "rows", "starts": "starts",
}  # fmt: skip


def field_pointers(schema: Schema) -> list[tuple[str, Any]]:
    """Members of scopes and edges that point to fields: `seen0` is the first of `State.seen`."""
    return [
        (f"{group}{number}", types.CPointer(element_of(dtype)))
        for group, kind in _GROUPS.items()
        for number, (_, dtype, _) in enumerate(getattr(schema, kind))
    ]


@infer_getattr
class _ScopeAttributes(AttributeTemplate):
    key = ScopeType

    def generic_resolve(self, kind: ScopeType, name: str) -> Any:
        if name in _NUMBERS:
            return types.int64
        if name in kind.schema.syncs:
            return _VECTOR if kind.schema.sync(name)[1] else types.float64
        if kind.reads and kind.schema.row(name) >= 0:
            return _row_type(kind.schema, name)
        number = kind.schema.field(name)
        unset = kind.schema.consistency == INIT and not kind.own and name not in kind.schema.given
        if number < 0 or not kind.reads or unset:
            return None
        return field_type(kind.schema.fields[number], kind.writes)


def _row_type(schema: Schema, name: str) -> Any:
    return types.Array(element_of(schema.rows[schema.row(name)][1]), 1, "C", readonly=True)


def proxy_of(context: Any, builder: Any, kind: Any, value: Any = None) -> Any:
    """Members of a scope or edge by name."""
    return cgutils.create_struct_proxy(kind)(context, builder, value)


def _at(builder: Any, pointer: Any, index: Any) -> Any:
    return builder.load(builder.gep(pointer, [index]))


def _degree(builder: Any, scope: Any, indptr: str) -> Any:
    pointer, one = getattr(scope, indptr), ir.IntType(64)(1)
    return builder.sub(_at(builder, pointer, builder.add(scope.vertex, one)), _at(builder, pointer, scope.vertex))


@lower_getattr_generic(ScopeType)
def _get(context: Any, builder: Any, kind: ScopeType, value: Any, name: str) -> Any:
    scope, schema = proxy_of(context, builder, kind, value), kind.schema
    if name in ("vertices", "step"):
        return getattr(scope, name)
    if name == "vertex":
        return builder.sext(_at(builder, scope.numbers, scope.vertex), ir.IntType(64))
    if name == "degree" and schema.directed:
        return builder.add(_degree(builder, scope, "indptr"), _degree(builder, scope, "in_indptr"))
    if name in _NUMBERS:
        return _degree(builder, scope, "in_indptr" if name == "in_degree" else "indptr")
    if name in schema.syncs:
        place, size = (ir.IntType(64)(number) for number in schema.sync(name))
        begin = builder.gep(scope.globals, [place])
        return array_at(context, builder, _VECTOR, begin, size) if size.constant else builder.load(begin)
    if (row := schema.row(name)) >= 0:
        begin = builder.gep(getattr(scope, f"rows{row}"), [_at(builder, getattr(scope, f"starts{row}"), scope.vertex)])
        return array_at(context, builder, _row_type(schema, name), begin, _degree(builder, scope, f"starts{row}"))
    number = schema.field(name)
    pointer = getattr(scope, f"{'fields' if kind.writes else 'seen'}{number}")
    if schema.checked and (kind.writes or schema.checked == "consistent"):
        may_write = kind.writes and bool(schema.fields[number][2])
        record_access(context, builder, scope.checks, scope.vertex, number, len(schema.fields), may_write)
    if not kind.own and schema.fields[number][2]:
        bring_field(builder, schema.fields[number], pointer, scope.later)
    return load_field(context, builder, schema.fields[number], pointer, scope.vertex, kind.writes)


@lower_setattr_generic(ScopeType)
def _set(context: Any, builder: Any, signature: Any, args: Any, name: str) -> None:
    kind, given = signature.args
    number = kind.schema.field(name)
    if number < 0 or not kind.writes or kind.schema.fields[number][2]:
        raise TypingError(f"this scope may not write {name}")
    scope = proxy_of(context, builder, kind, args[0])
    address = getattr(scope, f"fields{number}"), [scope.vertex]
    if kind.schema.checked:
        record_access(context, builder, scope.checks, scope.vertex, number, len(kind.schema.fields), True)
    store_field(context, builder, kind.schema.fields[number], address, args[1], given)


def scope_maker(schema: Schema) -> Any:
    """Intrinsic `scope_of(state, vertex)` of a program."""

    @intrinsic
    def scope_of(typing: Any, state: Any, vertex: Any) -> Any:
        kind = ScopeType(schema, True)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            members = dict(zip(State._fields, range(len(State._fields)), strict=True))
            made = proxy_of(context, builder, kind)

            def element(name: str) -> Any:
                return builder.extract_value(args[0], members[name])

            def data(array: Any, value: Any) -> Any:
                return context.make_array(array)(context, builder, value).data

            for name in _POINTERS:
                setattr(made, name, data(state.types[members[name]], element(name)))
            for name in _GROUPS:
                for number, array in enumerate(state.types[members[name]]):
                    setattr(made, f"{name}{number}", data(array, builder.extract_value(element(name), number)))
            made.vertices = element("vertices")
            made.vertex, made.step, made.seed = args[1], element("step"), element("seed")
            return made._getvalue()

        return kind(state, types.int64), generate

    return scope_of


def _member(name: str, index: bool = True) -> Any:
    """Intrinsic that reads a number of a scope, or an element of an array by its index."""
    result = types.int64 if name == "vertex" else _POINTERS.get(name, types.uint64)

    @intrinsic
    def member(typing: Any, scope: Any, place: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = getattr(proxy_of(context, builder, scope, args[0]), name)
            return _at(builder, value, args[1]) if index else value

        return result(scope, types.int64), generate

    return member


_indptr, _indices, _weights = _member("indptr"), _member("indices"), _member("weights")
_in_indptr, _in_indices, _in_weights = _member("in_indptr"), _member("in_indices"), _member("in_weights")
_seed, _place = _member("seed", index=False), _member("vertex", index=False)


@intrinsic
def _neighbour_of(typing: Any, scope: Any, vertex: Any, later: Any) -> Any:
    """The neighbour of this number; where a vector of it is read, that of `later` is brought into the cache."""
    kind = ScopeType(scope.schema, False)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        own, made = proxy_of(context, builder, scope, args[0]), proxy_of(context, builder, kind)
        for name in context.data_model_manager.lookup(kind)._fields:
            setattr(made, name, getattr(own, name))
        made.vertex, made.later = args[1], args[2]
        return made._getvalue()

    return kind(scope, types.int64, types.int64), generate


@intrinsic
def _raise_signal(typing: Any, scope: Any, vertex: Any, priority: Any) -> Any:
    """Set a vertex's signal to the larger of itself and a positive float32, in whatever order threads do."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        proxy, bits = proxy_of(context, builder, scope, args[0]), builder.bitcast(args[2], ir.IntType(32))
        block = builder.lshr(args[1], ir.IntType(64)(6))
        with ExitStack() as raised:  # who raises a signal sees to that of its block
            for array, index in ((proxy.signals, args[1]), (proxy.largest, block)):
                pointer = builder.gep(array, [index])
                lower = builder.icmp_signed("<", builder.load_atomic(pointer, "monotonic", 4), bits)
                raised.enter_context(builder.if_then(lower))
                builder.atomic_rmw("max", pointer, bits, "monotonic")
        return context.get_dummy_value()

    return types.void(scope, types.int64, types.float32), generate


@intrinsic
def _no_index(typing: Any, scope: Any, i: Any, count: Any) -> Any:
    """Record an index of a neighbour that the vertex does not have."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        record_index(context, builder, proxy_of(context, builder, scope, args[0]).checks, *args[1:])
        return context.get_dummy_value()

    return types.void(scope, types.int64, types.int64), generate


@register_jitable
def _index(scope, i, count, begin):
    """An index of a neighbour, in a verified run instead of one beyond them that of the first arc."""
    if i < 0 or i >= count:
        _no_index(scope, np.int64(i), count)
        return -begin
    return np.int64(i)


def indexed(scope: Any, read: Any, entering: bool = False) -> Any:
    """A function of a scope and the index of a neighbour; in a verified run it checks the index."""
    if read is None or not scope.schema.checked:
        return read
    read = register_jitable(read)
    if entering:
        return lambda scope, i: read(
            scope, _index(scope, i, scope.in_degree, _in_indptr(scope, _place(scope, 0)))
        )  # fmt: skip
    return lambda scope, i: read(scope, _index(scope, i, scope.degree, _indptr(scope, _place(scope, 0))))


def _neighbour(scope: Any, i: Any) -> Any:
    if not scope.own:
        return None
    if not scope.schema.directed:

        def following(scope, i):
            place = _place(scope, 0)
            arc = _indptr(scope, place) + i
            vertex = np.int64(_indices(scope, arc))
            if arc + _AHEAD < _indptr(scope, place + 1):
                return _neighbour_of(scope, vertex, np.int64(_indices(scope, arc + _AHEAD)))
            return _neighbour_of(scope, vertex, vertex)

        return indexed(scope, following)

    def either(scope, i):
        out = scope.out_degree
        if i < out:
            vertex = np.int64(_indices(scope, _indptr(scope, _place(scope, 0)) + i))
        else:
            vertex = np.int64(_in_indices(scope, _in_indptr(scope, _place(scope, 0)) + i - out))
        return _neighbour_of(scope, vertex, vertex)

    return indexed(scope, either)


def _in_neighbour(scope: Any, i: Any) -> Any:
    if not scope.own:
        return None

    def entering(scope, i):
        vertex = np.int64(_in_indices(scope, _in_indptr(scope, _place(scope, 0)) + i))
        return _neighbour_of(scope, vertex, vertex)

    return indexed(scope, entering, entering=True)


def _weight(scope: Any, i: Any) -> Any:
    if not scope.own:
        return None
    if not scope.schema.weighted:
        return lambda scope, i: np.float32(1.0)
    if not scope.schema.directed:
        return indexed(scope, lambda scope, i: _weights(scope, _indptr(scope, _place(scope, 0)) + i))

    def either(scope, i):
        out = scope.out_degree
        if i < out:
            return _weights(scope, _indptr(scope, _place(scope, 0)) + i)
        return _in_weights(scope, _in_indptr(scope, _place(scope, 0)) + i - out)

    return indexed(scope, either)


def _in_weight(scope: Any, i: Any) -> Any:
    if not scope.own:
        return None
    if not scope.schema.weighted:
        return lambda scope, i: np.float32(1.0)
    return indexed(scope, lambda scope, i: _in_weights(scope, _in_indptr(scope, _place(scope, 0)) + i), entering=True)


def _signal(scope: Any, other: Any, priority: Any = 1.0) -> Any:
    if not scope.own or not isinstance(other, ScopeType):
        return None

    def signal(scope, other, priority=1.0):
        if priority > 0.0:
            _raise_signal(scope, _place(other, 0), np.float32(priority))

    return signal


def _random(scope: Any, k: Any) -> Any:
    if not scope.own:
        return None

    def random(scope, k):
        item = mix(_seed(scope, 0) + np.uint64(scope.step) * GAMMA) + np.uint64(scope.vertex) * GAMMA
        return uniform(mix(item) + np.uint64(k) * GAMMA)

    return random


for _name, _choose in {
    "neighbour": _neighbour, "in_neighbour": _in_neighbour, "weight": _weight, "in_weight": _in_weight,
    "signal": _signal, "random": _random,
}.items():  # fmt: skip
    overload_method(ScopeType, _name, inline="always", strict=False)(_choose)
