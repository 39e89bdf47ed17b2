"""A run of a vertex program in one process: steps until no vertex is active, and what they left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numba.core.errors import NumbaError, UnsupportedBytecodeError
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.exact_sum import WORDS, exact_total
from superworkflow.tasks.lib.vertex.blocks import Splash
from superworkflow.tasks.lib.vertex.compile import explained, functions_of, schema_of
from superworkflow.tasks.lib.vertex.given import NOTHING_GIVEN, GivenFields
from superworkflow.tasks.lib.vertex.outcome import ProgramOutcome, Reporter, StepFigures
from superworkflow.tasks.lib.vertex.program import AT_REST, ProgramParams, Sync, SyncRun, VertexProgram
from superworkflow.tasks.lib.vertex.renumber import Numbering
from superworkflow.tasks.lib.vertex.scheduler import BLOCK, Queue, bucket, signalled
from superworkflow.tasks.lib.vertex.scope import State
from superworkflow.tasks.lib.vertex.slots import edge_slots
from superworkflow.tasks.lib.vertex.snapshots import RunPosition, Snapshots
from superworkflow.tasks.lib.vertex.transpose import transposed
from superworkflow.tasks.lib.vertex.verify import Verification

_END = -1
"""Step of the syncs that are computed at the end alone."""
ONE = int(np.float32(1.0).view(np.int32))
"""Bits of the priority 1."""

_CACHE_BYTES = 3 << 20
"""More of the fields that updates read of neighbours is not in the cache of a core, and worth prefetching."""
_NO_FAULT = (1 << 30, 0)

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
        idle: bool [vertices], those that no update changes, whose colours may conflict; None for none.
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
    idle: NDArray[np.bool_] | None = None


class Restartable(Protocol):
    """Values of an earlier run that a run starts from; see `earlier.Earlier`."""

    changed: NDArray[np.bool_]

    def set_messages(self, messages: Fields, ends: NDArray[np.int64] | None = None) -> None:
        """Give edges their earlier messages; `ends` are those of the slots, if they are not all edges."""


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
        snapshots: of this run.

    Attributes:
        numbering: places of the vertices.
        fields: by name, [vertices] or [vertices, length], by place.
        globals: float64 [syncs].
    """

    numbering: Numbering

    def __init__(
        self, program: VertexProgram, params: ProgramParams, graph: Coloured, threads: int = 1,
        nodes: Mapping[str, int] = MappingProxyType({}), given: GivenFields = NOTHING_GIVEN,
        earlier: Restartable | None = None, snapshots: Snapshots | None = None,
    ):  # fmt: skip
        self._program, self._params, self._threads = program, params, threads
        self._earlier, self._snapshots = earlier, snapshots
        sizes = {**graph.sizes, **given.lengths}
        self._schema = schema_of(program, params, graph.directed, graph.weights is not None, sizes)
        self._vertices = len(graph.indptr) - 1
        ints = {name: value for name, value in params.model_dump().items() if type(value) is int}
        self._sizes = {**sizes, **ints, "vertices": self._vertices}
        self._lengths = [sync.sizes_of(self._sizes)[0] for sync in program.syncs.values()]
        self._sum_rows = np.cumsum([1, *(max(1, length) for length in self._lengths)]).tolist()
        self._functions = functions_of(program, self._schema, params, nodes, self._lengths)
        self.globals = np.zeros(sum(max(1, size) for size in self._schema.sizes))
        self._arc_count = len(graph.indices) * (2 if graph.directed else 1)
        self._lay_out(graph, {**graph.given, **given.values})
        own = len(self._degrees)
        self._signals = np.zeros(len(self._numbers), np.int32)
        self._largest = np.zeros(-(-len(self._numbers) // BLOCK), np.int32)
        self._order, self._queue = np.arange(own, dtype=np.int32), np.empty(own, np.int32)
        self._everything = Queue(self._order, self._bounds, int(self._degrees.sum()))
        self._compiled = False
        self._is_far = sum(self.fields[name].nbytes for name in self._functions.steps.BROUGHT) > _CACHE_BYTES
        self._verification = (
            Verification(program.name, self.fields, self.edges, self.messages) if params.verify else None
        )
        self._splash = None if self._blocks is None else Splash(self._blocks, self._bounds, self._degrees)
        if self._splash is not None and params.execution == "synchronous":
            raise UserError("blocks need consistent execution: their updates see each other",
                            where=f"{program.name}.execution", value=params.execution,
                            remedy="Set it to consistent, or colour.block=1")  # fmt: skip
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def _lay_out(self, graph: Coloured, given: Fields) -> None:
        """Set the arrays by place: `_numbers`, `_degrees`, `_bounds`, `_blocks`, `_arcs`, `_slots`, `_rows`, fields."""
        rows = [(graph.indptr, graph.indices, np.empty(0, np.float32) if graph.weights is None else graph.weights)]
        if graph.directed:
            rows.append(transposed(graph.indptr, graph.indices, graph.weights))
        self._bounds, self._blocks = graph.bounds, graph.blocks
        degrees: NDArray[np.int64] = np.sum([np.diff(indptr) for indptr, _, _ in rows], axis=0)
        self.numbering = Numbering(graph.order, graph.bounds, degrees, graph.blocks is not None)
        self._numbers, self._degrees = self.numbering.numbers, self.numbering.by_place(degrees)
        self.fields = zeros_of(self._schema.fields, self._vertices)
        for name, values in given.items():
            self.fields[name][:] = self.numbering.by_place(values)
        self._rows: list[tuple[NDArray[Any], NDArray[Any]]] = []
        for name, dtype, _ in self._schema.rows:
            starts, row_values = graph.rows[name]
            lengths = self.numbering.by_place(np.diff(starts))
            made = self.numbering.of_arcs(starts, row_values.astype(dtype, copy=False))
            self._rows.append((np.concatenate([[0], np.cumsum(lengths)]), read_only(made)))
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
        self.edges = zeros_of(self._schema.edges, edges)
        self.messages = zeros_of(self._schema.messages, 2 * edges)

    def run(self, progress: Reporter | None = None) -> ProgramOutcome:
        """Initialise, and take steps until the run ends; their progress is reported.

        Raises:
            UserError: the program cannot be compiled, or writes what its consistency forbids; or its residual is not
                finite.
        """
        try:
            return self._run(progress)
        except (NumbaError, UnsupportedBytecodeError) as error:
            raise explained(error, self._program) from None
        except IndexError as error:  # of a verified run, whose functions check bounds
            raise UserError(f"an update takes an element that an array does not have ({error})",
                            where=f"program {self._program.name}",
                            remedy="Compare the index with the length of the field") from None  # fmt: skip
        finally:
            if self._pool is not None:
                self._pool.shutdown()

    def _run(self, progress: Reporter | None) -> ProgramOutcome:
        params = self._params
        self._prepare()
        now = self._resumed() or self._begun()
        most = (getattr(params, "max_sweeps", None) or 0) * self._vertices
        for step in range(now.step + 1, params.max_steps + 1):
            queue = self._next_queue(step, now.top)
            if queue is None and self._at_rest(step):
                now.top = ONE
                queue = self._next_queue(step, now.top)
            if queue is None:
                return self._outcome(now.trace, "empty")
            figures = self._no_sums()
            figures[0][0] = self._step(step, queue).sum(axis=0)
            found = self._close_step(step, StepFigures(*figures, queue.updates, queue.arcs))
            residual = self._note_step(step, found, now)
            if progress is not None:
                progress.update(step, 0, "steps", updates=found.updates, residual=residual)
            if params.tolerance > 0 and residual <= params.tolerance:
                return self._outcome(now.trace, "tolerance")
            if 0 < most <= now.updates:
                return self._outcome(now.trace, "sweeps")
            if self._snapshots is not None and found.save:
                now.globals = self.globals.tolist()
                self._snapshots.save(now, self._state_arrays(), bool(found.stop))
        return self._outcome(now.trace, "steps")

    def _next_queue(self, step: int, top: int) -> Queue | None:
        """Vertices or blocks that a step updates; None if no vertex is active.

        Args:
            step: its number.
            top: bits of the largest signal of all vertices.
        """
        scheduler, own = self._params.scheduler, len(self._order)
        signals, largest = self._signals[:own], self._largest[: -(-own // BLOCK)]
        if not (self._vertices if scheduler == "sweep" else top):
            return None
        lowest = bucket(top) if scheduler == "priority" else 1
        if self._splash is not None:
            return self._splash.queue(signals, 0 if scheduler == "sweep" else lowest)
        if scheduler == "sweep":
            return self._shuffled(step) if self._program.shuffled else self._everything
        return signalled(self._bounds, signals, largest, self._degrees, lowest, self._queue)

    def _colour_order(self, step: int) -> NDArray[np.int64]:
        """Colours in an order that seed and step draw."""
        drawn = np.random.Philox(key=[self._params.seed, step]).random_raw(len(self._bounds) - 1)
        return np.argsort(drawn, kind="stable")

    def _shuffled(self, step: int) -> Queue:
        """All vertices, with the colours in the order of the step."""
        colours = self._colour_order(step)
        sizes = np.diff(self._bounds)[colours]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        moved = np.repeat(self._bounds[colours] - starts[:-1], sizes)
        return Queue((np.arange(starts[-1]) + moved).astype(np.int32), starts, self._everything.arcs)

    def _note_step(self, step: int, found: StepFigures, now: RunPosition) -> float:
        """Add a step to the position of the run; returns its residual."""
        residual = exact_total(found.sums[0].tolist())
        every = {name for name, sync in self._program.syncs.items() if sync.every}
        values = {name: value for name, value in self._values().items() if name in every}
        now.step, now.top, now.updates = step, found.top, now.updates + found.updates
        now.trace.append({"step": step, "updates": found.updates, "arcs": found.arcs, "residual": residual, **values})
        if not np.isfinite(residual):
            raise self._not_finite(step)
        if residual < 0:
            raise UserError("the residual is negative", where=f"program {self._program.name}, step {step}",
                            value=residual, remedy="Return how much has changed, such as abs(change)")  # fmt: skip
        return residual

    def _prepare(self) -> None:
        """Do what comes before the first call of the program's functions."""

    def _begun(self) -> RunPosition:
        """Initialise; returns the position before the first step."""
        self._initialise()
        if self._earlier is not None:
            self._restart(self._earlier)
        top = self._close_step(0, StepFigures(*self._no_sums())).top
        if self._earlier is None and not top:
            own = len(self._order)
            self._signals[:own] = self._largest[: -(-own // BLOCK)] = top = ONE
        return RunPosition(top=top)

    def _state_arrays(self) -> dict[str, NDArray[Any]]:
        """All that the next step depends on, but the position."""
        groups = {"field": self.fields, "edge": self.edges, "message": self.messages}
        made = {f"{kind}.{name}": each for kind, group in groups.items() for name, each in group.items()}
        return {**made, "signals": self._signals}

    def _resumed(self) -> RunPosition | None:
        """The position of the last snapshot, whose state is restored; None for none."""
        mine = self._state_arrays()
        saved = self._snapshots.restore(mine) if self._snapshots is not None else None
        if saved is None:
            return None
        position, arrays = saved
        for name, each in mine.items():
            each[:] = arrays[name]
        self.globals[:] = position.globals
        self._set_largest()
        return position

    def _set_largest(self) -> None:
        self._largest[:] = np.maximum.reduceat(self._signals, np.arange(0, len(self._signals), BLOCK))

    def _restart(self, earlier: Restartable) -> None:
        """Set what an earlier run has left, and signal what has changed alone."""
        assert self._program.restart is not None
        values = {name: self.numbering.by_vertex(each) for name, each in self.fields.items()}
        self._program.restart(values, earlier)
        for name, each in values.items():
            self.fields[name][:] = self.numbering.by_place(each)
        earlier.set_messages(self.messages)
        self._signals[:] = np.where(self.numbering.by_place(earlier.changed), ONE, 0)
        self._set_largest()

    def _initialise(self) -> None:
        """Call `init` for all vertices."""
        self._functions.steps.run_init(self._state(0), self._functions.settings, 0, self._vertices)

    def _agreed(self, figures: StepFigures) -> StepFigures:
        """Figures of all vertices, from those of the vertices that this engine updates."""
        return figures

    def _no_sums(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        return np.zeros((self._sum_rows[-1], WORDS), np.int64), np.zeros(len(self._lengths))

    def _at_rest(self, step: int) -> bool:
        """Compute the syncs that wait for this; if one has another value now, all vertices are signalled."""
        if not any(sync.every == AT_REST for sync in self._program.syncs.values()):
            return False
        before, own = self.globals.copy(), len(self._order)
        self._close_step(step, StepFigures(*self._no_sums()), rests=True)
        changed = not np.array_equal(before, self.globals)
        if changed:
            self._signals[:own] = self._largest[: -(-own // BLOCK)] = ONE
        return changed

    def _values(self, vectors: bool = False) -> dict[str, Any]:
        """Values of the syncs, by name; vectors as lists."""
        found: dict[str, Any] = {}
        for name, size in zip(self._program.syncs, self._schema.sizes, strict=True):
            begin, _ = self._schema.sync(name)
            if vectors or not size:
                found[name] = self.globals[begin : begin + size].tolist() if size else float(self.globals[begin])
        return found

    def _close_step(self, step: int, figures: StepFigures, rests: bool = False) -> StepFigures:
        """Fold the syncs whose turn it is, and set their values and the largest signal; returns all figures."""
        turn = [each.every == AT_REST if rests else _is_due(each, step) for each in self._program.syncs.values()]
        for number in np.flatnonzero(turn).tolist():
            figures.largest[number] = self._functions.folds[number].fold_all(
                self._state(step), self._functions.settings, len(self._order), figures.sums, self._sum_rows[number]
            )
        signals = self._largest[: -(-len(self._order) // BLOCK)] if self._splash is None else self._signals
        figures.top = int(signals.max(initial=0))
        if self._snapshots is not None and step > 0:
            figures.save, figures.stop = self._snapshots.wishes()
        found = self._agreed(figures)
        for number, sync in enumerate(self._program.syncs.values()):
            rows = found.sums[self._sum_rows[number] : self._sum_rows[number + 1]]
            begin, size = self._schema.sync(self._schema.syncs[number])
            if turn[number] and size:
                totals = np.array([exact_total(row.tolist()) for row in rows])
                value = self.globals[begin : begin + size]
                run = SyncRun(value.copy(), step, self._sizes, self._params)
                value[:] = sync.finalize(totals, run) if sync.finalize is not None else totals
            elif turn[number]:
                total = exact_total(rows[0].tolist())
                total = float(found.largest[number]) if sync.merge == "max" else total
                if sync.finalize is not None:
                    total = sync.finalize(total, self._vertices, self._arc_count)
                self.globals[begin] = total
        return found

    def _outcome(self, trace: list[dict[str, float]], ended: str) -> ProgramOutcome:
        self._close_step(_END, StepFigures(*self._no_sums()))
        return ProgramOutcome(self._by_vertex(), self._values(vectors=True), trace, ended, self._by_slot())

    def _by_vertex(self) -> Fields:
        """The fields by vertex; those by place are gone, so that there are never two of all."""
        return {name: self.numbering.by_vertex(self.fields.pop(name)) for name in list(self.fields)}

    def _by_slot(self) -> Fields:
        """Messages in the order of `slots.edge_slots`."""
        return self.messages

    def _step(self, step: int, queue: Queue) -> NDArray[np.int64]:
        """Update the vertices of a step; returns exact sums of their residuals, [threads, WORDS]."""
        return self._update(self._state(step, self._params.execution == "synchronous"), queue)

    def _update(self, state: State, queue: Queue) -> NDArray[np.int64]:
        """Update the vertices of a queue, see `_step`."""
        sums = np.zeros((self._threads, WORDS), np.int64)
        claims, arrived = (np.zeros(len(queue.starts) - 1, np.int64) for _ in range(2))
        # The first step is taken by one thread, which compiles. Colours of one block leave nothing to others.
        block = self._functions.steps.BLOCK if self._splash is None else 1
        threads = self._threads if int(np.diff(queue.starts).max(initial=0)) > block and self._compiled else 1
        # Under vertex consistency all blocks have one colour, and those that an update signals may be of it: where
        # their trees begin depends on the order.
        ordered = self._splash is not None and self._program.consistency == "vertex"
        threads = 1 if ordered or self._verification is not None else threads
        self._compiled = True

        def share(row: int) -> None:
            try:
                shared = self._functions.settings, sums, row, claims, arrived, threads
                if self._splash is not None:
                    self._functions.steps.run_splashes(
                        state, queue.vertices, queue.starts, self._splash.starts, self._splash.path, self._splash.seen,
                        *shared,
                    )  # fmt: skip
                else:
                    self._functions.steps.run_share(state, queue.vertices, queue.starts, self._is_far, *shared)
            except BaseException:  # others that wait for this thread are released, and end
                claims[:] = arrived[:] = 1 << 40
                raise

        if self._pool is None or threads == 1:
            share(0)
        else:
            list(self._pool.map(share, range(threads)))
        if self._verification is not None:
            self._verification.check(int(state.step), self._numbers, self._bounds)
        return sums

    def _state(self, step: int, copied: bool = False) -> State:
        """State of a step; `copied`, neighbours are seen as they are now."""
        own, edges, messages = (tuple(each.values()) for each in (self.fields, self.edges, self.messages))
        seen, received = (
            tuple(read_only(each.copy() if copied else each) for each in group) for group in (own, messages)
        )
        return State._make([
            *self._arcs, *self._slots, self._numbers, self._signals, self._largest, self.globals,
            np.empty(0, np.int64) if self._verification is None else self._verification.checks,
            np.uint64(self._params.seed), np.int64(step), np.int64(self._vertices), own, seen, edges, messages,
            received, tuple(values for _, values in self._rows),
            tuple(starts for starts, _ in self._rows),
        ])  # fmt: skip

    def _fault(self) -> tuple[int, int]:
        """Number of the first field that has a value that is no number, and its first vertex; of edges -1 for that."""
        for number, values in enumerate({**self.fields, **self.edges, **self.messages}.values()):
            if values.dtype.kind == "f" and np.isnan(values).any():
                if number >= len(self.fields):
                    return number, -1
                wrong = np.isnan(values).reshape(len(values), -1).any(axis=1)
                return number, int(self._numbers[wrong].min())
        return _NO_FAULT

    def _not_finite(self, step: int) -> UserError:
        program, (number, vertex) = f"program {self._program.name}", self._fault()
        if (number, vertex) == _NO_FAULT:
            return UserError("the residual is not a finite number", where=f"{program}, step {step}",
                             remedy="Return a finite number from update")  # fmt: skip
        name = [*self.fields, *self.edges, *self.messages][number]
        where = f"{program}: field {name}, step {step}"
        if number >= len(self.fields):
            return UserError("a field of an edge is not a number", where=where,
                             remedy="Check the update for divisions by 0")  # fmt: skip
        return UserError(
            "a field is not a number", where=where, value=f"vertex {vertex}",
            remedy="Check the update for divisions by 0 and for values that diverge",
        )  # fmt: skip


def _is_due(sync: Sync, step: int) -> bool:
    """True if a sync is computed after a step, `_END` for the last one."""
    if step == _END or not sync.every:
        return step == _END and not sync.every
    return step == 0 or (sync.every > 0 and step % sync.every == 0)


def zeros_of(fields: Iterable[tuple[str, str, int]], rows: int) -> dict[str, NDArray[Any]]:
    """Arrays of fields by name, of zeros."""
    return {name: np.zeros((rows, length) if length else rows, dtype) for name, dtype, length in fields}
