"""Vertex programs: one update function of a vertex and its neighbourhood, run until nothing changes.

    PROGRAM = VertexProgram(
        name="pagerank", fields={"rank": "float64"}, init=init, update=update, params=PagerankParams,
    )

`init(scope, params)` and `update(scope, params)` are Python that Numba compiles. A scope has the fields of its vertex
as attributes, to read and to write (an integer one takes no float without `int(…)`), and besides

    scope.vertex, scope.vertices          number of the vertex, and of all vertices
    scope.step                            number of the step, 0 in `init`
    scope.degree, scope.neighbour(i)      neighbours; of a directed graph those behind out-edges, then in-edges
    scope.weight(i)                       weight of the edge to neighbour i, 1.0 in a graph without weights
    scope.out_degree, scope.in_degree     of a directed graph; else both are `degree`
    scope.in_neighbour(i), scope.in_weight(i)    the other ends of in-edges
    scope.edge(i), scope.in_edge(i)       the edge to neighbour i, and to in-neighbour i, of a program with edge fields
    scope.signal(neighbour, priority)     have a neighbour, or the scope itself, updated in a later step; a priority
                                          that is not above 0 signals nothing
    scope.random(k)                       number in [0, 1) that depends on seed, step, vertex and k alone
    scope.<name of a sync>                its value at the beginning of the step

An edge has its fields as attributes, which both ends share, and of each message `out_<name>`, which this vertex sends,
and `in_<name>`, which the neighbour has sent and which is read-only. Under vertex consistency edges are read-only, but
in `init`.

A neighbour has its fields, `vertex`, `out_degree` and `in_degree`. `update` may return its residual, a number from 0 on
that says how much it has changed; the sum of a step is in the trace, and ends the run when it is within `tolerance`.

A run equals one sequential execution, always the same one: updates in the order (step, colour, vertex), as in
GraphLab's chromatic engine (Low et al., VLDB 2012) and Prism (Kaler et al., SPAA 2014). Vertices of one colour do not
conflict, so that threads take them in any order and no bit changes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from keyword import iskeyword
from typing import Any, Literal

from pydantic import Field

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.tasks.lib.vertex.gather_apply import update_of

FieldKind = str | tuple[str, int | str]
"""NumPy type, or a pair of type and length; a length may be the name of a parameter or of a fact of the graph, or the
product of two, `draws*factors`."""
Consistency = Literal["vertex", "edge", "full"]
_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "update": ("scope", "params"), "init": ("scope", "params"), "gather": ("scope", "other", "weight", "params"),
    "apply": ("scope", "total", "params"), "scatter": ("scope", "other", "params"),
}  # fmt: skip
_OF_SCOPES = (
    "vertex", "vertices", "step", "degree", "neighbour", "weight", "out_degree", "in_degree", "in_neighbour",
    "in_weight", "edge", "in_edge", "signal", "random",
)  # fmt: skip
_WORK = "superworkflow.tasks.lib.vertex.stage:run_program"
CLASSES = "classes.json"
"""File of a program's dataset with the names of classes."""
SIDE = "side"
"""Field of a graph of two node sets."""
CONSTANT = 2
"""Side of a constant feature."""
LEVEL = "level"
"""Field of a lattice: the value that a vertex has observed, from 0 for the least to 1 for the largest."""
DISTANCES: Mapping[str, int] = {"vertex": 0, "edge": 1, "full": 2}
"""Distance within which two vertices of one colour never lie, by consistency."""


class ProgramParams(StageParams):
    """Parameters that every vertex program has; a program may have its own defaults and further ones."""

    scheduler: Literal["sweep", "fifo", "priority"] = Field(
        default="fifo",
        description="Vertices of a step. sweep: all. fifo: those that were signalled in the last step, at first all. "
        "priority: of the signalled ones those whose priority is in the highest power of two.",
    )
    execution: Literal["consistent", "synchronous"] = Field(
        default="consistent",
        description="consistent: an update sees what earlier updates of the step have written, in colours' order. "
        "synchronous: it sees its neighbours and their messages as they were before the step, as in Pregel.",
    )
    max_steps: int = Field(default=1_000_000, ge=1, le=10**9, description="Most steps, 1 to 10⁹.")
    tolerance: float = Field(
        default=0.0, ge=0.0, description="Ends the run when the residuals of a step add up to this at most, 0 or more."
    )
    seed: int = Field(default=0, ge=0, lt=2**31, description="Seed of `scope.random`, 0 to 2147483647.")
    snapshot_every: float = Field(
        default=60.0, ge=0,
        description="Seconds between snapshots from which a run that was killed resumes; 0 for none. They take a "
        "20th of the time at most.",
        json_schema_extra={"affects_result": False},
    )  # fmt: skip
    verify: bool = Field(
        default=False,
        description="Record what each update reads and writes, and refuse two that conflict in one colour, and "
        "neighbours that a vertex does not have; slower, in one thread.",
    )

    def identity(self) -> dict[str, Any]:
        """As of every stage; with `verify` a run has a dataset of its own, since one that exists was not verified."""
        values = super().identity()
        return values if self.verify else {name: value for name, value in values.items() if name != "verify"}


def check_verified(params: ProgramParams, alone: str) -> None:
    """Check that a program runs if it is to be verified.

    Args:
        params: of the program.
        alone: value of `execution` that runs none.

    Raises:
        ValueError: it has this value.
    """
    if params.verify and params.execution == alone:
        raise ValueError(f"{alone} has no updates that could be verified; set execution=consistent too")


AT_REST = -1
"""A sync is computed where no vertex is active; if it has another value then, all vertices are signalled."""


@dataclass(frozen=True)
class SyncRun:
    """State of the run in which a sync of several numbers is computed.

    Args:
        value: float64 [size], its last value, at first zeros.
        step: number of the step.
        sizes: integers by name: parameters, facts of the graph such as `labels`, and `vertices`.
        params: the program's parameters.
    """

    value: Any
    step: int
    sizes: Mapping[str, int]
    params: Any


@dataclass(frozen=True)
class Sync:
    """A value of the whole graph, computed again every few steps and read-only in updates.

    Args:
        fold: compiled `fold(scope, params)`, a number for each vertex, which only reads.
        merge: sum, or max, of these numbers; in blocks of vertices that are always the same.
        every: steps after which it is computed again; at first it is computed after `init`. 0: at the end alone.
            `AT_REST`: where no vertex is active.
        finalize: plain function of the merged number, the vertices and the sum of their degrees to the value.
        length: plain function of sizes, see `SyncRun`, to the numbers of a sync of several. Then `fold(scope, params,
            values)` adds what a vertex says to an array, and `finalize(totals, run)` makes the value of the sums, an
            array; `scope.<name>` is that array, read-only.
        size: plain function of sizes to the numbers of the value, by default as many as `length`.
    """

    fold: Callable[..., Any]
    merge: Literal["sum", "max"] = "sum"
    every: int = 1
    finalize: Callable[..., Any] | None = None
    length: Callable[[Mapping[str, int]], int] | None = None
    size: Callable[[Mapping[str, int]], int] | None = None

    def sizes_of(self, sizes: Mapping[str, int]) -> tuple[int, int]:
        """Numbers that are folded, and those of the value; 0 of a single one."""
        if self.length is None:
            return 0, 0
        return self.length(sizes), (self.size or self.length)(sizes)


def length_of(names: str, sizes: Mapping[str, Any], default: int = 0) -> int:
    """Length of a vector by the name of a size, or the product of two.

    Args:
        names: such as `labels`, or `draws*factors`.
        sizes: by name.
        default: for a size that is no integer from 1 on.
    """
    found = 1
    for name in names.split("*"):
        size = sizes.get(name)
        found *= size if isinstance(size, int) and size > 0 else default
    return found


def keep_fields(values: Mapping[str, Any], earlier: Any) -> None:
    """A `restart` by which vertices begin with all that the earlier run has left of them."""
    earlier.keep(values, *earlier.fields)


def of_parts(scope: Any, params: Any) -> Any:
    """Placeholder of an update that is made of `gather`, `apply` and `scatter`."""


@dataclass(frozen=True)
class VertexProgram:
    """A vertex program.

    Args:
        name: lower-case word, also the name of its stage and superworkflow.
        fields: NumPy type of each field by name, such as float32; a vector is a pair of type and length, which may be
            the name of a parameter, of a fact of the graph such as `labels` of a lattice, or of a field in `classes`,
            for as many as there are classes; or the product of two such names, `draws*factors`.
        update: compiled `update(scope, params)`.
        init: compiled `init(scope, params)`, which sets the fields of its vertex alone; without one they are 0. Of
            neighbours it reads the fields in `given` and `graph_fields`, which are set already.
        params: parameter model.
        consistency: what an update may touch, which the colouring keeps apart. edge: it reads its neighbours' fields.
            vertex: none of them. full: it writes them too.
        syncs: values of the whole graph by name.
        finish: plain function of the fields by name and the parameters, [vertices] each, to what is written; by default
            the fields themselves.
        nodes: parameters that name a node; programs read its number.
        given: fields whose values come from the columns of their names in the table `--vertices`; 0 without a row.
            `init` sees them, and should leave them as they are.
        classes: those of them, int32, that hold names of classes: their number in the order of the names, -1 without.
            Fields of `shown` are published with these names.
        shown: int32 fields that hold a class, by the field in `classes` that has its names.
        help: one line for people.
        edge_fields: the same as `fields` for each edge; both ends read and write them.
        messages: the same for each direction of an edge; the end from which it points writes them.
        graph_fields: fields that the graph's dataset gives, as `<field>.npy`, before `init`. `side` is that of a graph
            of two node sets: 0 of sources, 1 of targets.
        graph_rows: NumPy type, by name, of read-only vectors whose length is each vertex's own. The graph's dataset
            gives them as `<name>.npy`, one after the other, and `<name>_indptr.npy` int64 [vertices + 1].
        arc_fields: NumPy type, by name, of read-only vectors of one number for each neighbour, `scope.<name>[i]` of
            that behind edge i. A dataset of the graph's edges gives them as `<name>.npy` [arcs] in the order of
            `indices.npy`; without one they are empty.
        restart: plain function by which a run starts from an earlier one; without it none does. It gets the fields by
            name after `init`, [vertices] each, to write, and what the earlier run left, an `earlier.Earlier`; it
            marks further vertices there as changed. `keep_fields` is one for programs that end at one fixed point.
        defaults: values of parameters that are None.
        report: plain function of the syncs' values by name, and the parameters, to what `globals.json` has; by default
            the values themselves.
        shuffled: sweeps take the colours in an order that seed and step draw, instead of ascending.
        signed: weights may be any finite numbers, such as ratings; else they must be positive.
        gather: compiled `gather(scope, other, weight, params)`, instead of `update` with `apply`: a number of each
            in-neighbour. They are summed in fixed blocks, as float64.
        apply: compiled `apply(scope, total, params)`, which sets the vertex's fields from their sum and returns the
            residual.
        scatter: compiled `scatter(scope, other, params)`, after that: the priority by which an out-neighbour is
            signalled, 0 for none; without it none is.

    Raises:
        UserError: neither `update` nor `gather` and `apply` are given, or both; or a function has other arguments, or
            a name is none of the program's fields or parameters.
    """

    name: str
    fields: Mapping[str, FieldKind]
    update: Callable[[Any, Any], Any] = of_parts
    init: Callable[[Any, Any], Any] | None = None
    params: type[ProgramParams] = ProgramParams
    consistency: Consistency = "edge"
    syncs: Mapping[str, Sync] = field(default_factory=dict)
    finish: Callable[[Mapping[str, Any], Any], Mapping[str, Any]] | None = None
    nodes: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    shown: Mapping[str, str] = field(default_factory=dict)
    help: str = ""
    edge_fields: Mapping[str, FieldKind] = field(default_factory=dict)
    messages: Mapping[str, FieldKind] = field(default_factory=dict)
    graph_fields: tuple[str, ...] = ()
    graph_rows: Mapping[str, str] = field(default_factory=dict)
    arc_fields: Mapping[str, str] = field(default_factory=dict)
    restart: Callable[[Mapping[str, Any], Any], None] | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    report: Callable[[Mapping[str, Any], Any], dict[str, Any]] | None = None
    shuffled: bool = False
    signed: bool = False
    gather: Callable[..., Any] | None = None
    apply: Callable[..., Any] | None = None
    scatter: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        parts = [each for each in (self.gather, self.apply, self.scatter) if each is not None]
        if (self.update is of_parts) != bool(parts) or (parts and None in (self.gather, self.apply)):
            raise UserError("a program has either update, or gather and apply", where=f"program {self.name}",
                            remedy="Give VertexProgram update, or gather, apply and perhaps scatter")  # fmt: skip
        if self.gather is not None and self.apply is not None:
            object.__setattr__(self, "update", update_of(self.gather, self.apply, self.scatter))
        where = f"program {self.name}"
        if not (isinstance(self.params, type) and issubclass(self.params, ProgramParams)):
            raise UserError("params is no model of parameters", where=where, value=self.params,
                            remedy="Give a class derived from ProgramParams")  # fmt: skip
        merges = {name: sync.merge for name, sync in self.syncs.items() if sync.merge not in ("sum", "max")}
        if self.consistency not in DISTANCES or merges:
            what, choices = (
                (f"merge of sync {min(merges)}", "sum or max") if merges else ("consistency", "vertex, edge or full")
            )
            raise UserError(f"no such {what}", where=where, value=min(merges.values(), default=self.consistency),
                            remedy=f"Write {choices}")  # fmt: skip
        for name in (*self.fields, *self.syncs):
            if not name.isidentifier() or iskeyword(name) or name in _OF_SCOPES:
                raise UserError("no name of a field or sync: a scope could not have it as an attribute of its own",
                                where=where, value=name, remedy="Give it another name")  # fmt: skip
        if columns := {"node"} & set(self.fields) | {"updates", "arcs", "residual"} & set(self.syncs):
            raise UserError("no name of a field or sync: a table of results has a column of this name", where=where,
                            value=min(columns), remedy="Give it another name")  # fmt: skip
        if not self.fields:
            raise UserError("it has no field, in which an update could leave anything", where=where,
                            remedy='Give VertexProgram fields={"value": "float64"}')  # fmt: skip
        of_field = {*self.fields, *self.graph_fields}
        for what, names, allowed in (
            ("nodes", self.nodes, self.params.model_fields), ("given", self.given, of_field),
            ("classes", self.classes, self.given), ("shown", self.shown, of_field),
        ):  # fmt: skip
            if strange := next((name for name in names if name not in allowed), None):
                raise UserError(f"{what} names nothing of the program", where=where, value=strange,
                                remedy=f"Name one of: {', '.join(allowed) or 'none'}")  # fmt: skip
        for what, given in _ARGUMENTS.items():
            function = getattr(self, what)
            try:
                _ = None if function is None else inspect.signature(function).bind(*given)
            except TypeError:
                raise UserError(f"{what} has other arguments", where=where, value=str(inspect.signature(function)),
                                remedy=f"Write def {what}({', '.join(given)})") from None  # fmt: skip
            except ValueError:  # a function without a signature
                continue

    def __call__(self, job: StageRun[Any]) -> Output:
        """The work of the program's stage: run it and write its fields.

        Files: `<field>-<number>.npy`, 2²⁰ vertices each; `globals.json`; `trace.parquet` with columns `step`,
        `updates`, `arcs`, `residual`, and one for each sync. Of a program with `restart` also its messages,
        `<message>-<number>.npy`, in the order of `slots.edge_slots`.

        Raises:
            UserError: the program cannot be compiled, breaks its consistency, or diverges; or the colours are of
                another graph.
        """
        output: Output = imported(_WORK)(self, job)
        return output
