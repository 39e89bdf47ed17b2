"""Layout of a schema's sets: which have tables, and which reverse another one."""

from __future__ import annotations

from dataclasses import dataclass

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.graph.heterograph import Feature
from superworkflow.tasks.lib.graph.schema import (
    ContextSchema,
    EdgeSetSchema,
    GraphSchema,
    NodeSetSchema,
    SchemaFeature,
    table_name,
)


@dataclass(frozen=True)
class SchemaLayout:
    """A schema's sets in the order of their numbers.

    Args:
        node_sets, edge_sets: by the bytes of their names.
        reversed_of: name of the set that an edge set reverses, for those that do.
        context: of the graph.
        where: the schema, for people.
    """

    node_sets: tuple[NodeSetSchema, ...]
    edge_sets: tuple[EdgeSetSchema, ...]
    reversed_of: dict[str, str]
    context: ContextSchema
    where: str

    def table(self, items: ContextSchema | NodeSetSchema | EdgeSetSchema) -> str:
        """Name of a set's table, as sources name it; empty where it has none."""
        return table_name(items.metadata.filename) if items.metadata.filename else ""


def layout_of(schema: GraphSchema, where: str) -> SchemaLayout:
    """Arrange a schema.

    Raises:
        UserError: a set lacks a table, or reverses one whose ends do not match; names the line.
    """
    nodes = tuple(sorted(schema.node_sets.values(), key=lambda each: each.name.encode()))
    edges = tuple(sorted(schema.edge_sets.values(), key=lambda each: each.name.encode()))
    for each in nodes:
        if each.features and not each.metadata.filename:
            raise UserError("a node set has features and no table", where=f"{where}:{each.line}", value=each.name,
                            remedy="Give its filename, or leave the features out")  # fmt: skip
    for edge_set in edges:
        if not edge_set.metadata.filename:
            raise UserError("an edge set has no table", where=f"{where}:{edge_set.line}", value=edge_set.name,
                            remedy="Give its filename; that of a reversed set is the other set's")  # fmt: skip
    owners: list[ContextSchema | NodeSetSchema | EdgeSetSchema] = [schema.context, *nodes, *edges]
    for owner in owners:
        for feature in owner.features:
            if None in feature.shape[1:]:
                raise UserError(
                    "a feature is ragged in another dimension than its first", where=f"{where}:{owner.line}",
                    value=feature.name, remedy="Give sizes to the other dimensions, or flatten it",
                )  # fmt: skip
    names = {each.name: table_name(each.metadata.filename) for each in edges}
    reversed_of = {}
    for edge_set in edges:
        if edge_set.is_reversed:
            others = [each for each in edges if not each.is_reversed and names[each.name] == names[edge_set.name]]
            if others:
                reversed_of[edge_set.name] = _reversed(edge_set, others, where).name
    return SchemaLayout(nodes, edges, reversed_of, schema.context, where)


def named_ends(layout: SchemaLayout) -> list[tuple[EdgeSetSchema, list[str]]]:
    """Edge sets whose tables name the nodes of sets without one, each with the ends at which they do."""
    latent = {each.name for each in layout.node_sets if not layout.table(each)}
    tables = [each for each in layout.edge_sets if each.name not in layout.reversed_of]
    ends = [(each, [end for end in ("source", "target") if getattr(each, end) in latent]) for each in tables]
    return [each for each in ends if each[1]]


def keeps_ends(naming: list[tuple[EdgeSetSchema, list[str]]]) -> bool:
    """True if what `named_ends` gives is read once: one table alone, of which both ends are read."""
    return len(naming) == 1 and len(naming[0][1]) == 2


def _reversed(edge_set: EdgeSetSchema, others: list[EdgeSetSchema], where: str) -> EdgeSetSchema:
    """Edge set of the same table that an edge set reverses."""
    ends = (edge_set.target, edge_set.source)
    match = next((each for each in others if (each.source, each.target) == ends), None)
    if match is None:
        raise UserError(
            f"a reversed edge set's ends do not match those of {others[0].name!r}, which has the same table: that is "
            f"from {others[0].source!r} to {others[0].target!r}",
            where=f"{where}:{edge_set.line}", value=f"{edge_set.name!r} from {ends[1]!r} to {ends[0]!r}",
            remedy="Exchange its source and target",
        )  # fmt: skip
    lacking = {each.name for each in edge_set.features} - {each.name for each in match.features}
    if lacking:
        raise UserError(
            f"a reversed edge set has a feature that {match.name!r}, which it reverses, has not",
            where=f"{where}:{edge_set.line}", value=min(lacking), remedy=f"Describe it in {match.name!r} as well",
        )  # fmt: skip
    return match


def sorted_features(features: tuple[SchemaFeature, ...]) -> tuple[Feature, ...]:
    """Features in the order of their numbers."""
    ordered = sorted(features, key=lambda each: each.name.encode())
    return tuple(Feature(each.name, each.dtype, each.shape) for each in ordered)
