"""An earlier run of a vertex program, from whose values a run starts: vertices matched by name, and what has changed.

A vertex has changed if it is new, if its own data differ, or if an edge of it is new, gone, or of another weight. Only
these are signalled; a program's `restart` adds those whose earlier values no longer hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.graph.integrity import check_rows, unfit
from superworkflow.tasks.lib.vertex.given import GivenFields
from superworkflow.tasks.lib.vertex.program import CLASSES, LEVEL, SIDE, ProgramParams, VertexProgram
from superworkflow.tasks.lib.vertex.run import Coloured
from superworkflow.tasks.lib.vertex.vertex_names import matched


@dataclass
class Earlier:
    """Values of an earlier run, matched with the present graph.

    Args:
        fields: values by earlier vertex, with the present numbers of classes.
        messages: values by earlier slot, see `slots.edge_slots`.
        number: int32 [earlier vertices], the present number of each, -1 of those that are gone.
        indptr: int64 [earlier vertices + 1].
        indices: int32 [earlier arcs].
        weights: float32 [earlier arcs] or None.
        lost: bool [earlier arcs], arcs that are gone or have another weight.
        graph: the present one.
        kept: bool [vertices], of those that were there.
        differs: bool [vertices], of those whose own data differ; new ones too.
        changed: bool [vertices], to be signalled.
    """

    fields: Mapping[str, NDArray[Any]]
    messages: Mapping[str, NDArray[Any]]
    number: NDArray[np.int32]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    lost: NDArray[np.bool_]
    graph: Coloured
    kept: NDArray[np.bool_]
    differs: NDArray[np.bool_]
    changed: NDArray[np.bool_]

    @property
    def rows(self) -> NDArray[np.int64]:
        """int64 [earlier arcs], the earlier vertex in whose row each is."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    def keep(self, values: Mapping[str, NDArray[Any]], *names: str) -> None:
        """Give the vertices that were there their earlier values of some fields."""
        there = self.number >= 0
        for name in names:
            values[name][self.number[there]] = self.fields[name][there]

    def around(self, vertices: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """bool [vertices], neighbours of some, whatever the direction."""
        near = np.zeros(len(vertices), bool)
        rows = np.repeat(vertices, np.diff(self.graph.indptr))
        near[self.graph.indices[rows]] = True
        if self.graph.directed:
            ends = np.concatenate([[0], np.cumsum(vertices[self.graph.indices])])[self.graph.indptr]
            near |= np.diff(ends) > 0
        return near

    def set_messages(self, messages: Mapping[str, NDArray[Any]], ends: NDArray[np.int64] | None = None) -> None:
        """Give the edges that were there their earlier messages.

        Args:
            messages: by name and slot, to write.
            ends: int64 [edges, 2], present vertices that the edges of these slots join, in any order if undirected; by
                default all edges, in the order of `slots.edge_slots`.
        """
        if not messages:
            return
        if ends is None:
            ends = _edges(self.graph.indptr, self.graph.indices, self.graph.directed)
        before = self.number[_edges(self.indptr, self.indices, self.graph.directed)].astype(np.int64)
        (keys, turned), (wanted, flipped) = (self._keys(each) for each in (ends, before))
        order, there = np.argsort(keys, kind="stable"), (before >= 0).all(axis=1)
        keys, wanted = keys[order], wanted[there]
        place = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
        found = keys[place] == wanted if len(keys) else np.zeros(len(wanted), bool)
        old, new = np.flatnonzero(there)[found], order[place[found]]
        for name, values in messages.items():
            now, then = (each if each.ndim > 1 else each[:, None] for each in (values, self.messages[name]))
            width = min(now.shape[1], then.shape[1]) if len(old) else 0
            for side in range(2):
                now[2 * new + (side ^ turned[new]), :width] = then[2 * old + (side ^ flipped[old]), :width]

    def _keys(self, ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Numbers of edges by their ends, and whether an undirected edge has the higher one first."""
        flipped = (ends[:, 0] > ends[:, 1]) & (not self.graph.directed)
        first, second = np.where(flipped, ends[:, ::-1].T, ends.T)
        return first * len(self.kept) + second, flipped


def _edges(indptr: NDArray[np.int64], indices: NDArray[np.int32], directed: bool) -> NDArray[np.int64]:
    """int64 [edges, 2], ends in the order of their slots, which is ascending."""
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    once = slice(None) if directed else indices > rows
    return np.stack([rows[once], indices[once].astype(np.int64)], axis=1)


def earlier_of(
    program: VertexProgram, params: ProgramParams, initial: Dataset, before: Dataset, graph: Dataset,
    coloured: Coloured, given: GivenFields,
) -> Earlier:  # fmt: skip
    """An earlier run of a program, matched with the present graph.

    Args:
        program: what runs now.
        params: its parameters.
        initial: what it left earlier.
        before: the graph on which it ran.
        graph: the present one.
        coloured: the same as arrays.
        given: present values of fields from a table.

    Raises:
        UserError: it was another program, or began at another node; the graphs have no vertex in common, or are of
            different kinds; or a file is damaged.
    """
    _check(program, params, initial, before, graph)
    number = matched(before, graph)
    vertices = len(coloured.indptr) - 1
    indptr, indices = before.array("indptr.npy", mmap=False), before.array("indices.npy", mmap=False)
    weights = before.array("weights.npy", mmap=False) if before.stats.get("weighted") else None
    check_rows(before.uri, indptr, indices, weights, len(number))
    kept = np.zeros(vertices, bool)
    kept[number[number >= 0]] = True
    if not kept.any():
        raise UserError("the earlier run has no vertex in common with this graph", where="initial", value=initial.uri,
                        remedy="Give a run on an earlier state of this graph, or leave it out")  # fmt: skip
    fields = _fields(program, initial, given, len(number))
    slots = 2 * (len(indices) if coloured.directed else len(indices) // 2)
    messages = {name: _whole(initial, name, slots) for name in program.messages}
    made = Earlier(fields, messages, number, indptr, indices, weights, np.zeros(len(indices), bool), coloured, kept,
                   ~kept, ~kept)  # fmt: skip
    compare_arcs(made)
    _compare_data(program, made, before, graph, given)
    now, then = params.identity(), initial.manifest.params
    ignored = {*ProgramParams.model_fields, "max_sweeps"}
    others = any(now[name] != then.get(name) for name in now if name not in ignored)
    if others or initial.stats.get("ended") not in ("empty", "tolerance"):
        made.changed[:] = True
    return made


def _check(program: VertexProgram, params: ProgramParams, initial: Dataset, before: Dataset, graph: Dataset) -> None:
    entry = initial.manifest.inputs.get("graph")
    if initial.manifest.stage != program.name:
        raise UserError("the earlier run is of another program", where="initial", value=initial.manifest.stage,
                        remedy=f"Give a folder that stage {program.name} made")  # fmt: skip
    if entry is None or entry.digest != before.digest:
        raise UserError("this is not the graph of the earlier run", where="initial", value=before.uri,
                        remedy="Give the one of which its manifest has the digest")  # fmt: skip
    for name in program.nodes:
        if (then := initial.manifest.params.get(name)) != getattr(params, name):
            raise UserError(f"the earlier run has another {name}, so that its values say nothing here",
                            where=f"initial: {program.name}.{name}", value=then,
                            remedy=f"Give a run with {name} {getattr(params, name)}, or leave it out")  # fmt: skip
    for fact in ("directed", "labels"):
        if before.stats.get(fact) != graph.stats.get(fact):
            raise UserError(f"the graph of the earlier run differs in `{fact}`", where="initial",
                            value=f"{before.stats.get(fact)}, now {graph.stats.get(fact)}",
                            remedy="Give a run on a graph of the same kind, or leave it out")  # fmt: skip


def _whole(initial: Dataset, name: str, rows: int) -> NDArray[Any]:
    files = initial.files(f"{name}-*.npy")
    if not files:
        raise UserError(f"the earlier run has no values of {name}", where="initial", value=initial.uri,
                        remedy="Run it again with this version, or leave it out")  # fmt: skip
    values: NDArray[Any] = np.concatenate([initial.array(file) for file in files])
    if len(values) != rows:
        raise unfit(f"{initial.uri}/{files[0]}", f"{rows} rows by its graph", len(values))
    return values


def _fields(program: VertexProgram, initial: Dataset, given: GivenFields, rows: int) -> dict[str, NDArray[Any]]:
    """Values by earlier vertex; classes and vectors by class have their present numbers."""
    names = str(initial.stats.get("fields") or "").split(",")
    fields = {name: _whole(initial, name, rows) for name in names if name in program.fields}
    if not program.classes:
        return fields
    then = initial.json(CLASSES)
    numbers = {
        name: np.array([given.classes[name].index(each) if each in given.classes[name] else -1 for each in then[name]])
        for name in program.classes
    }
    for name in fields:
        kind, shown = program.fields[name], program.shown.get(name, name)
        length = kind[1] if isinstance(kind, tuple) else ""
        if shown in numbers:
            present = np.append(numbers[shown], -1)
            fields[name] = present[np.where(fields[name] < 0, -1, fields[name])].astype(fields[name].dtype)
        elif length in numbers:
            moved = np.zeros((rows, len(given.classes[str(length)])), fields[name].dtype)
            stay = numbers[str(length)] >= 0
            moved[:, numbers[str(length)][stay]] = fields[name][:, stay]
            fields[name] = moved
    return fields


def compare_arcs(made: Earlier) -> None:
    """Find the arcs that are lost or new, and mark their ends."""
    graph, number, size = made.graph, made.number, len(made.kept)
    weights = [np.ones(len(each.indices), np.float32) if each.weights is None else np.asarray(each.weights)
               for each in (made, graph)]  # fmt: skip
    if np.array_equal(made.indptr, graph.indptr) and np.array_equal(number, np.arange(size, dtype=np.int32)):
        same = np.asarray(graph.indices) == made.indices
        if same.all():
            made.lost[:] = weights[0] != weights[1]
            made.changed[made.indices[made.lost]] = made.changed[made.rows[made.lost]] = True
            return
    rows = np.repeat(np.arange(size), np.diff(graph.indptr))
    keys = rows * size + graph.indices
    ends = number[made.rows].astype(np.int64), number[made.indices].astype(np.int64)
    place = np.minimum(np.searchsorted(keys, ends[0] * size + ends[1]), max(0, len(keys) - 1))
    found = (ends[0] >= 0) & (ends[1] >= 0)
    found &= keys[place] == ends[0] * size + ends[1] if len(keys) else False
    made.lost[:] = ~found
    made.lost[found] = weights[0][found] != weights[1][place[found]]
    for side in ends:
        made.changed[side[made.lost & (side >= 0)]] = True
    new = np.ones(len(keys), bool)
    new[place[~made.lost]] = False
    made.changed[rows[new]] = made.changed[graph.indices[new]] = True


def _compare_data(program: VertexProgram, made: Earlier, before: Dataset, graph: Dataset, given: GivenFields) -> None:
    """Mark the vertices whose values from the graph or the table differ."""
    there = np.flatnonzero(made.number >= 0)
    now = made.number[there]
    pairs = [(before.array(f"{name}.npy"), made.graph.given[name]) for name in program.graph_fields
             if name not in (SIDE, LEVEL)]  # fmt: skip
    if LEVEL in program.graph_fields:
        pairs.append((before.array("observed.npy"), graph.array("observed.npy")))
    pairs += [(made.fields[name], given.values[name]) for name in program.given if name in made.fields]
    if any(name not in made.fields for name in program.given):
        made.differs[:] = True
    for old, new in pairs:
        made.differs[now] |= (old[there] != new[now]).reshape(len(now), -1).any(axis=1)
    for name in program.graph_rows:
        starts, values = before.array(f"{name}_indptr.npy"), before.array(f"{name}.npy")
        made.differs[now] |= ~_same_rows((starts, values), made.graph.rows[name], there, now)
    made.changed |= made.differs


def _same_rows(
    old: tuple[NDArray[np.int64], NDArray[Any]], new: tuple[NDArray[np.int64], NDArray[Any]],
    there: NDArray[np.int64], now: NDArray[np.int32],
) -> NDArray[np.bool_]:  # fmt: skip
    """bool [pairs], rows of pairs of an earlier and a present vertex that are equal."""
    lengths = np.diff(old[0])[there], np.diff(new[0])[now]
    same: NDArray[np.bool_] = lengths[0] == lengths[1]
    length = np.where(same, lengths[0], 0)
    within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    differ = old[1][np.repeat(old[0][there], length) + within] != new[1][np.repeat(new[0][now], length) + within]
    same[np.repeat(np.arange(len(now)), length)[differ]] = False
    return same
