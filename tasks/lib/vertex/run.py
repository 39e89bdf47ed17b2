"""A run of a vertex program in one process: steps until no vertex is active, and what they left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.progress import Progress
from superworkflow.tasks.lib.vertex.compile import explained, functions_of, schema_of
from superworkflow.tasks.lib.vertex.given import NOTHING_GIVEN, GivenFields
from superworkflow.tasks.lib.vertex.program import AT_REST, ProgramParams, Sync, SyncRun, VertexProgram
from superworkflow.tasks.lib.vertex.renumber import Numbering
from superworkflow.tasks.lib.vertex.scheduler import BLOCK, Queue, signalled
from superworkflow.tasks.lib.vertex.scope import State
from superworkflow.tasks.lib.vertex.slots import edge_slots
from superworkflow.tasks.lib.vertex.splash import Splash
from superworkflow.tasks.lib.vertex.transpose import transposed

_FOLD_BLOCK = 1 << 16
_END = -1
"""Step of the syncs that are computed at the end alone."""
_ONE = int(np.float32(1.0).view(np.int32))

Fields = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Coloured:
    """A graph whose vertices are divided into colours.

    Args:
        indptr: int64 [vertices + 1]; of out-edges if directed.
        indices: int32 [arcs].
        weights: float32 [arcs] or None.
        order: int32 [vertices], by colour, ascending in each.
        bounds: int64 [colours + 1], where each colour begins in the order.
        directed: edges have a direction.
        given: values of vertices' fields by name, [vertices] or [vertices, length], before `init`.
        sizes: lengths of vectors that the program leaves to the graph, by name.
        blocks: int64 [blocks + 1], where each block begins in the order; None if each vertex is one.
        rows: by name, `indptr` int64 [vertices + 1] and values of vectors whose length is each vertex's own.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    order: NDArray[np.int32]
    bounds: NDArray[np.int64]
    directed: bool = False
    given: Fields = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[str, tuple[NDArray[np.int64], NDArray[Any]]] = field(default_factory=dict)
    blocks: NDArray[np.int64] | None = None


class Restartable(Protocol):
    """Values of an earlier run that a run starts from; see `earlier.Earlier`."""

    changed: NDArray[np.bool_]

    def set_messages(self, messages: Fields) -> None:
        """Give edges their earlier messages."""


@dataclass
class ProgramOutcome:
    """Result of a run.

    Args:
        fields: by name, [vertices] or [vertices, length].
        globals: values of the syncs at the end.
        trace: of each step its number, updates, arcs, residual and globals.
        ended: empty, steps, tolerance, or sweeps.
        messages: by name, [2 * edges] or [2 * edges, length].
    """

    fields: Fields
    globals: dict[str, Any]
    trace: list[dict[str, float]] = field(default_factory=list)
    ended: str = "empty"
    messages: Fields = field(default_factory=dict)


class ChromaticEngine:
    """A program on a graph, between its steps. Its arrays are by place, see `renumber`; what it returns is by vertex.

    Args:
        program: what runs.
        params: its parameters.
        graph: what it runs on.
        threads: how many update; results do not depend on them.
        nodes: numbers of the nodes that parameters name.
        given: values of fields from a table.
        earlier: an earlier run to start from.

    Attributes:
        numbering: places of the vertices.
        fields: by name, [vertices] or [vertices, length], by place.
        globals: float64 [syncs].
    """

    def __init__(
        self, program: VertexProgram, params: ProgramParams, graph: Coloured, threads: int = 1,
        nodes: Mapping[str, int] = MappingProxyType({}), given: GivenFields = NOTHING_GIVEN,
        earlier: Restartable | None = None,
    ):  # fmt: skip
        vertices = len(graph.indptr) - 1
        self._program, self._params, self._bounds, self._threads = program, params, graph.bounds, threads
        self._earlier = earlier
        sizes = {**graph.sizes, **given.lengths}
        self._schema = schema_of(program, params, graph.directed, graph.weights is not None, sizes)
        ints = {name: value for name, value in params.model_dump().items() if type(value) is int}
        self._sizes = {**sizes, **ints, "vertices": vertices}
        self._lengths = [sync.sizes_of(self._sizes)[0] for sync in program.syncs.values()]
        self._functions = functions_of(program, self._schema, params, nodes, self._lengths)
        self.fields = _zeros(self._schema.fields, vertices)
        self._signals = np.zeros(vertices, np.int32)
        self._largest = np.zeros(-(-vertices // BLOCK), np.int32)
        self.globals = np.zeros(sum(max(1, size) for size in self._schema.sizes))
        rows = [(graph.indptr, graph.indices, np.empty(0, np.float32) if graph.weights is None else graph.weights)]
        if graph.directed:
            rows.append(transposed(graph.indptr, graph.indices, graph.weights))
        self._degrees: NDArray[np.int64] = np.sum([np.diff(indptr) for indptr, _, _ in rows], axis=0)
        self.numbering = Numbering(graph.order, graph.bounds, self._degrees, graph.blocks is not None)
        self._degrees = self.numbering.by_place(self._degrees)
        for name, values in {**graph.given, **given.values}.items():
            self.fields[name][:] = self.numbering.by_place(values)
        self._rows: list[tuple[NDArray[Any], NDArray[Any]]] = []
        for name, dtype, _ in self._schema.rows:
            starts, row_values = graph.rows[name]
            lengths = self.numbering.by_place(np.diff(starts))
            made = self.numbering.of_arcs(starts, row_values.astype(dtype, copy=False))
            self._rows.append((np.concatenate([[0], np.cumsum(lengths)]), _read_only(made)))
        self._arcs: list[NDArray[Any]] = []
        for indptr, indices, weights in rows:
            self._arcs += [*self.numbering.rows(indptr, indices), self.numbering.of_arcs(indptr, weights)]
        if not graph.directed:
            self._arcs += self._arcs
        edges, self._slots = 0, [np.empty(0, np.uint32)] * 2
        if self._schema.edges or self._schema.messages:
            edges, *slots = edge_slots(graph.indptr, graph.indices, rows[1][0] if graph.directed else None)
            sides = [self.numbering.of_arcs(indptr, each) for (indptr, _, _), each in zip(rows, slots, strict=False)]
            self._slots = sides * (2 // len(sides))
        self.edges = _zeros(self._schema.edges, edges)
        self.messages = _zeros(self._schema.messages, 2 * edges)
        self._order = np.arange(vertices, dtype=np.int32)
        self._queue = np.empty(vertices, np.int32)
        self._compiled = False
        self._splash = None if graph.blocks is None else Splash(graph.blocks, graph.bounds, self._degrees)
        if self._splash is not None and params.execution == "synchronous":
            raise UserError("blocks need consistent execution: their updates see each other",
                            where=f"{program.name}.execution", value=params.execution,
                            remedy="Set it to consistent, or colour.block=1")  # fmt: skip
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def run(self, progress: Progress | None = None) -> ProgramOutcome:
        """Initialise, and take steps until the run ends.

        Raises:
            UserError: the program cannot be compiled, or writes what its consistency forbids; or its residual is not
                finite.
        """
        try:
            return self._run(progress)
        except NumbaError as error:
            raise explained(error, self._program) from None
        finally:
            if self._pool is not None:
                self._pool.shutdown()

    def _run(self, progress: Progress | None) -> ProgramOutcome:
        params, vertices = self._params, len(self._queue)
        self._functions.steps.run_init(self._state(0), self._functions.settings, 0, vertices)
        if self._earlier is not None:
            self._restart(self._earlier)
        self._fold(0)
        if self._earlier is None and not self._largest.any():
            self._signals[:] = self._largest[:] = _ONE
        trace: list[dict[str, float]] = []
        most, updates = (getattr(params, "max_sweeps", None) or 0) * vertices, 0
        everything = Queue(self._order, self._bounds, int(self._degrees.sum()))
        for step in range(1, params.max_steps + 1):
            queue = self._active(step, everything)
            if not queue.updates and self._at_rest(step):
                queue = self._active(step, everything)
            if not queue.updates:
                return self._outcome(trace, "empty")
            residual = self._step(step, queue)
            self._fold(step)
            every = {name for name, sync in self._program.syncs.items() if sync.every}
            values = {name: value for name, value in self._values().items() if name in every}
            trace.append({"step": step, "updates": queue.updates, "arcs": queue.arcs, "residual": residual, **values})
            if not np.isfinite(residual):
                raise self._not_finite(step)
            if progress is not None:
                progress.update(step, 0, "steps", updates=queue.updates, residual=residual)
            if params.tolerance > 0 and residual <= params.tolerance:
                return self._outcome(trace, "tolerance")
            updates += queue.updates
            if 0 < most <= updates:
                return self._outcome(trace, "sweeps")
        return self._outcome(trace, "steps")

    def _shuffled(self, step: int) -> Queue:
        """All vertices, colours in an order that seed and step draw."""
        drawn = np.random.Philox(key=[self._params.seed, step]).random_raw(len(self._bounds) - 1)
        colours = np.argsort(drawn, kind="stable")
        sizes = np.diff(self._bounds)[colours]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        moved = np.repeat(self._bounds[colours] - starts[:-1], sizes)
        vertices = (np.arange(starts[-1]) + moved).astype(np.int32)
        return Queue(vertices, starts, int(self._degrees.sum()))

    def _outcome(self, trace: list[dict[str, float]], ended: str) -> ProgramOutcome:
        self._fold(_END)
        fields = {name: self.numbering.by_vertex(each) for name, each in self.fields.items()}
        return ProgramOutcome(fields, self._values(True), trace, ended, self.messages)

    def _active(self, step: int, everything: Queue) -> Queue:
        """Vertices, or blocks, of the next step."""
        if self._splash is not None:
            return self._splash.queue(self._signals, self._params.scheduler)
        if self._params.scheduler == "sweep":
            return self._shuffled(step) if self._program.shuffled else everything
        by_priority = self._params.scheduler == "priority"
        return signalled(self._bounds, self._signals, self._largest, self._degrees, by_priority, self._queue)

    def _at_rest(self, step: int) -> bool:
        """Compute the syncs that wait for this; if one has another value now, all vertices are signalled."""
        before = self.globals.copy()
        for number, sync in enumerate(self._program.syncs.values()):
            if sync.every == AT_REST:
                self._fold_one(number, sync, step)
        changed = not np.array_equal(before, self.globals)
        if changed:
            self._signals[:] = self._largest[:] = _ONE
        return changed

    def _values(self, vectors: bool = False) -> dict[str, Any]:
        """Values of the syncs, by name; vectors as lists."""
        found: dict[str, Any] = {}
        for name, size in zip(self._program.syncs, self._schema.sizes, strict=True):
            begin, _ = self._schema.sync(name)
            if vectors or not size:
                found[name] = self.globals[begin : begin + size].tolist() if size else float(self.globals[begin])
        return found

    def _restart(self, earlier: Restartable) -> None:
        """Set what an earlier run has left, and signal what has changed alone."""
        assert self._program.restart is not None
        values = {name: self.numbering.by_vertex(each) for name, each in self.fields.items()}
        self._program.restart(values, earlier)
        for name, each in values.items():
            self.fields[name][:] = self.numbering.by_place(each)
        earlier.set_messages(self.messages)
        self._signals[:] = np.where(self.numbering.by_place(earlier.changed), _ONE, 0)
        self._largest[:] = np.maximum.reduceat(self._signals, np.arange(0, len(self._signals), BLOCK))

    def _step(self, step: int, queue: Queue) -> float:
        """Update the vertices of a step; returns the sum of their residuals."""
        block = self._functions.steps.BLOCK if self._splash is None else 1
        blocks = int((-(-np.diff(queue.starts) // block)).sum())
        residuals, state = np.zeros(blocks), self._state(step, self._params.execution == "synchronous")
        claims, arrived = (np.zeros(len(queue.starts) - 1, np.int64) for _ in range(2))
        # The first step is taken by one thread, which compiles. Colours of one block leave nothing to others.
        threads = self._threads if int(np.diff(queue.starts).max()) > block and self._compiled else 1
        self._compiled = True

        def share(_: int) -> None:
            try:
                shared = self._functions.settings, residuals, claims, arrived, threads
                if self._splash is not None:
                    self._functions.steps.run_splashes(
                        state, queue.vertices, queue.starts, self._splash.starts, self._splash.path, self._splash.seen,
                        *shared,
                    )  # fmt: skip
                else:
                    self._functions.steps.run_share(state, queue.vertices, queue.starts, *shared)
            except BaseException:  # others that wait for this thread are released, and end
                claims[:] = arrived[:] = 1 << 40
                raise

        if self._pool is None or threads == 1:
            share(0)
        else:
            list(self._pool.map(share, range(threads)))
        return float(residuals.sum())

    def _state(self, step: int, copied: bool = False) -> State:
        """State of a step; `copied`, neighbours are seen as they are now."""
        own, edges, messages = (tuple(each.values()) for each in (self.fields, self.edges, self.messages))
        seen, received = (
            tuple(_read_only(each.copy() if copied else each) for each in group) for group in (own, messages)
        )
        return State._make([
            *self._arcs, *self._slots, self.numbering.numbers, self._signals, self._largest, self.globals,
            np.uint64(self._params.seed), np.int64(step), own, seen, edges, messages, received,
            tuple(values for _, values in self._rows), tuple(starts for starts, _ in self._rows),
        ])  # fmt: skip

    def _fold(self, step: int) -> None:
        """Compute the syncs whose turn it is."""
        for number, sync in enumerate(self._program.syncs.values()):
            if (step == _END and not sync.every) or (step == 0 and sync.every) or _due(sync, step):
                self._fold_one(number, sync, step)

    def _fold_one(self, number: int, sync: Sync, step: int) -> None:
        """Compute one sync."""
        vertices = len(self._queue)
        blocks = -(-vertices // _FOLD_BLOCK)
        begin, size = self._schema.sync(self._schema.syncs[number])
        fold = self._functions.folds[number]
        if size:
            totals = np.zeros((blocks, self._lengths[number]))
            fold.fold_vectors(self._state(step), self._functions.settings, _FOLD_BLOCK, totals)
            value = self.globals[begin : begin + size]
            run = SyncRun(value.copy(), step, self._sizes, self._params)
            value[:] = sync.finalize(totals.sum(axis=0), run) if sync.finalize else totals.sum(axis=0)
            return
        of_blocks = np.zeros(blocks)
        fold.fold_blocks(self._state(step), self._functions.settings, _FOLD_BLOCK, of_blocks)
        total = float(of_blocks.max(initial=0.0) if sync.merge == "max" else of_blocks.sum())
        if sync.finalize is not None:
            total = sync.finalize(total, vertices, int(self._degrees.sum()))
        self.globals[begin] = total

    def _not_finite(self, step: int) -> UserError:
        program = f"program {self._program.name}"
        for name, values in {**self.fields, **self.edges, **self.messages}.items():
            if values.dtype.kind != "f" or not np.isnan(values).any():
                continue
            where = f"{program}: field {name}, step {step}"
            if name not in self.fields:
                remedy = "Check the update for divisions by 0"
                return UserError("a field of an edge is not a number", where=where, remedy=remedy)
            wrong = np.isnan(values).reshape(len(values), -1).any(axis=1)
            return UserError(
                "a field is not a number", where=where, value=f"vertex {int(self.numbering.numbers[wrong].min())}",
                remedy="Check the update for divisions by 0 and for values that diverge",
            )  # fmt: skip
        return UserError("the residual is not a finite number", where=f"{program}, step {step}",
                         remedy="Return a finite number from update")  # fmt: skip


def _due(sync: Sync, step: int) -> bool:
    return sync.every > 0 and step > 0 and step % sync.every == 0


def _zeros(fields: Iterable[tuple[str, str, int]], rows: int) -> dict[str, NDArray[Any]]:
    return {name: np.zeros((rows, length) if length else rows, dtype) for name, dtype, length in fields}


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.setflags(write=False)
    return view
