"""Edges as Numba's type: `scope.edge(i)`, whose fields both ends share, and the messages of its two directions."""

# mypy: ignore-errors, since Numba's extension API has no types.

from __future__ import annotations

import re
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.errors import TypingError
from numba.core.imputils import lower_getattr_generic, lower_setattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, overload_method, register_jitable, register_model

from superworkflow.tasks.lib.vertex.field_access import field_type, load_field, store_field
from superworkflow.tasks.lib.vertex.scope import (
    Schema,
    ScopeType,
    field_pointers,
    indexed,
    proxy_of,
)
from superworkflow.tasks.lib.vertex.verify import record_access

_INT = ir.IntType(64)


class ScopeEdgeType(types.Type):
    """An edge of the vertex that is updated."""

    def __init__(self, schema: Schema):
        self.schema = schema
        super().__init__(name=f"edge({schema})")

    def find(self, name: str) -> tuple[tuple[str, str, int], str, bool] | None:
        """A field, the member that points to it, and whether it may be written."""
        writes = self.schema.consistency != "vertex"
        for number, field in enumerate(self.schema.edges):
            if field[0] == name:
                return field, f"edges{number}", writes
        for number, field in enumerate(self.schema.messages):
            if name == f"out_{field[0]}":
                return field, f"messages{number}", writes
            if name == f"in_{field[0]}":
                return field, f"received{number}", False
        return None


@register_model(ScopeEdgeType)
class _EdgeModel(models.StructModel):
    def __init__(self, manager: Any, kind: ScopeEdgeType):
        checks = [("checks", types.CPointer(types.int64))]
        super().__init__(manager, kind, [("slot", types.int64), *checks, *field_pointers(kind.schema)])


@infer_getattr
class _EdgeAttributes(AttributeTemplate):
    key = ScopeEdgeType

    def generic_resolve(self, kind: ScopeEdgeType, name: str) -> Any:
        found = kind.find(name)
        return None if found is None else field_type(found[0], found[2])


def _place(builder: Any, edge: Any, member: str) -> Any:
    """Place of the value: an edge has two slots, and `edge.slot` is that of the direction away from its vertex."""
    if member.startswith("edges"):
        return builder.lshr(edge.slot, _INT(1))
    return edge.slot if member.startswith("messages") else builder.xor(edge.slot, _INT(1))


def _record(context: Any, builder: Any, schema: Schema, edge: Any, member: str, writes: bool) -> None:
    """Record an access to a field, unless it is to a copy: that of an edge is in the slot of even number."""
    if not schema.checked or (member.startswith("received") and schema.checked != "consistent"):
        return
    number, slot = int(re.sub(r"\D", "", member)), _place(builder, edge, member)
    if member.startswith("edges"):
        slot = builder.shl(slot, _INT(1))
    else:
        number += len(schema.edges)
    width = len(schema.edges) + len(schema.messages)
    record_access(context, builder, edge.checks, slot, number, width, writes, of_edge=True)


@lower_getattr_generic(ScopeEdgeType)
def _get(context: Any, builder: Any, kind: ScopeEdgeType, value: Any, name: str) -> Any:
    edge = proxy_of(context, builder, kind, value)
    field, member, writes = kind.find(name)
    _record(context, builder, kind.schema, edge, member, writes and bool(field[2]))
    return load_field(context, builder, field, getattr(edge, member), _place(builder, edge, member), writes)


@lower_setattr_generic(ScopeEdgeType)
def _set(context: Any, builder: Any, signature: Any, args: Any, name: str) -> None:
    kind, given = signature.args
    field, member, writes = kind.find(name)
    if not writes or field[2]:
        raise TypingError(f"this edge may not write {name}")
    edge = proxy_of(context, builder, kind, args[0])
    _record(context, builder, kind.schema, edge, member, True)
    address = getattr(edge, member), [_place(builder, edge, member)]
    store_field(context, builder, field, address, args[1], given)


@intrinsic
def _edge_of(typing: Any, scope: Any, i: Any) -> Any:
    """Edge to neighbour i: of a directed graph out-edges, then in-edges."""
    schema = scope.schema
    kind = ScopeEdgeType(schema)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        own, made = proxy_of(context, builder, scope, args[0]), proxy_of(context, builder, kind)

        def at(pointer: Any, place: Any) -> Any:
            return builder.load(builder.gep(pointer, [place]))

        def slot(indptr: Any, slots: Any, number: Any) -> Any:
            return builder.zext(at(slots, builder.add(at(indptr, own.vertex), number)), _INT)

        if schema.directed:
            begin, end = at(own.indptr, own.vertex), at(own.indptr, builder.add(own.vertex, _INT(1)))
            out, place = builder.sub(end, begin), cgutils.alloca_once(builder, _INT)
            with builder.if_else(builder.icmp_signed("<", args[1], out)) as (outward, inward):
                with outward:
                    builder.store(slot(own.indptr, own.slots, args[1]), place)
                with inward:
                    builder.store(slot(own.in_indptr, own.in_slots, builder.sub(args[1], out)), place)
            made.slot = builder.load(place)
        else:
            made.slot = slot(own.indptr, own.slots, args[1])
        made.checks = own.checks
        for name, _ in field_pointers(schema):
            setattr(made, name, getattr(own, name))
        return made._getvalue()

    return kind(scope, types.int64), generate


@overload_method(ScopeType, "edge", inline="always", strict=False)
def _edge(scope: Any, i: Any) -> Any:
    if not scope.own or not (scope.schema.edges or scope.schema.messages):
        return None
    return indexed(scope, lambda scope, i: _edge_of(scope, i))


@overload_method(ScopeType, "in_edge", inline="always", strict=False)
def _in_edge(scope: Any, i: Any) -> Any:
    if not scope.own or not (scope.schema.edges or scope.schema.messages):
        return None
    read = register_jitable(_edge(scope, i))
    if not scope.schema.directed:
        return lambda scope, i: read(scope, i)
    return lambda scope, i: read(scope, scope.out_degree + i)
