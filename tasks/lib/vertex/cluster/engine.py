"""The chromatic engine on a worker group: the steps of one worker, which are those of one process divided."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.distributed.exchange import Exchange
from superworkflow.tasks.lib.kernels.exact_sum import WORDS
from superworkflow.tasks.lib.vertex.cluster.ghost_exchange import VALUES, CellGroup, GhostExchange
from superworkflow.tasks.lib.vertex.cluster.piece import SMALL, Division, Piece, fields_by_place
from superworkflow.tasks.lib.vertex.cluster.routes import edge_routes, vertex_routes
from superworkflow.tasks.lib.vertex.given import NOTHING_GIVEN, GivenFields
from superworkflow.tasks.lib.vertex.neighbour_reads import fields_of_neighbours
from superworkflow.tasks.lib.vertex.outcome import StepFigures
from superworkflow.tasks.lib.vertex.program import DISTANCES, ProgramParams, VertexProgram
from superworkflow.tasks.lib.vertex.run import ONE, ChromaticEngine, Coloured, Fields, Restartable, zeros_of
from superworkflow.tasks.lib.vertex.scheduler import BLOCK, Queue
from superworkflow.tasks.lib.vertex.snapshots import RunPosition, Snapshots
from superworkflow.tasks.lib.vertex.stage import of_one_colour

_LEAST_INTERIOR = 1 << 12
"""Updates that are worth a second call, while the border's values travel."""
_RESULTS, _FIGURES = "results", "figures"


class WorkerEngine(ChromaticEngine):
    """A worker's share of a run. All workers call `run` together; what it returns is complete on the first one.

    After the updates of a colour the values of the border that have changed travel to the workers that have ghosts of
    it, while the interior is updated. Signals travel at the end of a step, when all workers exchange their figures.

    Args:
        program, params, graph, threads, nodes, given: see `ChromaticEngine`; the graph's arrays may be mapped.
        exchange: with the other workers.
        owners: int16 [vertices]; by default ranges of each colour.
        small: edges of a colour that is not worth dividing.
        earlier: an earlier run to start from, of which each worker has all values until it has begun.
        snapshots: of this run.

    Raises:
        UserError: there are more workers than vertices; or edge fields or blocks under vertex consistency.
    """

    def __init__(
        self, program: VertexProgram, params: ProgramParams, graph: Coloured, exchange: Exchange, threads: int = 1,
        nodes: Mapping[str, int] = MappingProxyType({}), given: GivenFields = NOTHING_GIVEN,
        owners: NDArray[np.int16] | None = None, small: int = SMALL, earlier: Restartable | None = None,
        snapshots: Snapshots | None = None,
    ):  # fmt: skip
        if program.consistency == "vertex" and (program.edge_fields or program.messages):
            raise UserError("edge fields under vertex consistency are computed in process alone",
                            where=f"program {program.name}", remedy="Declare consistency='edge'")  # fmt: skip
        if program.consistency == "vertex" and graph.blocks is not None:  # they have one colour, and signal each other
            raise UserError("blocks under vertex consistency are updated in process alone", where="colour.block",
                            remedy="Set it to 1, or declare consistency='edge'")  # fmt: skip
        self._exchange, self._owners, self._small = exchange, owners, small
        super().__init__(program, params, graph, threads, nodes, given, earlier, snapshots)
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="ghosts")

    def _lay_out(self, graph: Coloured, given: Fields) -> None:
        """See `ChromaticEngine`; and set routes and groups."""
        division = Division.of(graph, self._exchange.size, self._owners, self._small)
        piece = Piece(graph, division, self._exchange.rank)
        distance = DISTANCES[self._program.consistency]
        if (vertex := piece.conflict(distance)) >= 0:
            raise of_one_colour(distance, vertex)
        self._numbers, self._degrees, self._bounds = piece.numbers, piece.degrees, piece.bounds
        self._blocks = piece.blocks
        self._borders, self.ghosts = piece.borders, len(piece.ghosts)
        self._own_vertices, self._all_owners = piece.vertices, division.owners
        self._own_places = piece.numbering.places
        self.fields = zeros_of(self._schema.fields, len(self._numbers))
        fields_by_place(piece, self.fields, given)
        self._rows = [
            piece.rows_by_place(graph.rows[name][0], graph.rows[name][1].astype(dtype, copy=False))
            for name, dtype, _ in self._schema.rows
        ]
        self._arcs = piece.arcs()
        self._routes = vertex_routes(piece, self._exchange.size)
        self._check_routes()
        edges, self._slots, groups = 0, [np.empty(0, np.uint32)] * 2, []
        self._ends: NDArray[np.int64] | None = None
        if self._schema.edges or self._schema.messages:
            edges, slots = piece.slots()
            self._kept_slots = piece.first_ends(slots[0]) if self._program.restart is not None else None
            sides = [piece.numbering.of_arcs(rows.indptr, each) for rows, each in zip(piece.rows, slots, strict=True)]
            self._slots = sides * (2 // len(sides))
            groups = list(edge_routes(piece, slots, self._exchange.size))
            if self._earlier is not None:
                self._ends = piece.ends(edges, slots)
        self.edges = zeros_of(self._schema.edges, edges)
        self.messages = zeros_of(self._schema.messages, 2 * edges)
        travel = {name: self.fields[name] for name in fields_of_neighbours(self._program)}
        made = [CellGroup(travel, self._routes, shared=True, back=self._program.consistency == "full")]
        for each, routes in zip((self.edges, self.messages), groups, strict=False):
            made += [CellGroup(each, routes, shared=False, back=True)] if each else []
        self._ghosts = GhostExchange(self._exchange, made)
        self._set_spans()

    def _set_spans(self) -> None:
        """Divide the colours into spans, at whose ends values travel: those of a span are updated by one worker each.

        `_spans` has the first colour of each span and the end; `_crossing` whether any value may travel at its end.
        """
        colours = len(self._bounds) - 1
        borders = sum(np.diff(route.leaving.starts) for route in self._routes)
        mine = np.stack([np.diff(self._bounds), np.asarray(borders, np.int64)])
        sizes = self._exchange.everyone(mine.ravel(), _FIGURES, alike=True).reshape(-1, 2, colours)
        alone = (sizes[:, 0] > 0).sum(axis=0) <= 1
        owner = sizes[:, 0].argmax(axis=0)
        follows = alone[1:] & alone[:-1] & (owner[1:] == owner[:-1])
        self._border_colours = np.asarray(sizes[:, 1].any(axis=0))
        self._spans = [0, *(np.flatnonzero(~follows) + 1).tolist(), colours]
        self._crossing = [bool(sizes[:, 1, low:high].any()) for low, high in itertools.pairwise(self._spans)]
        if self._program.consistency == "vertex":  # nobody reads a ghost
            self._crossing = [False] * len(self._crossing)
        elif self._program.consistency == "full":  # an interior vertex writes neighbours on the border
            self._crossing = [bool(sizes[:, 1].any())] * len(self._crossing)

    def _check_routes(self) -> None:
        """Check that both ends of each route have as many vertices."""
        counts = [[len(listed.cells) for listed in route] for route in self._routes]
        (mine, theirs) = zip(*counts, strict=True)
        found = self._exchange.swap([np.array([each]) for each in mine], _FIGURES, [1] * len(mine))
        if any(int(each[0]) != count for each, count in zip(found, theirs, strict=True)):
            raise UserError("an edge of an undirected graph is in the row of one end only",
                            remedy="Delete the graph's dataset and run again")  # fmt: skip

    @property
    def vertices(self) -> int:
        """Vertices that this worker owns."""
        return len(self._own_vertices)

    @property
    def changed_bytes(self) -> int:
        """Bytes of the values that it has sent because they had changed."""
        return self._ghosts.changed_bytes

    def _prepare(self) -> None:
        """Compile the program's functions, or load them: the first worker, then the others, who find them."""
        nothing = Queue(self._order[:0], np.zeros(2, np.int64), 0)
        for first in (True, False):
            if first == (self._exchange.rank == 0):
                state = self._state(0, self._params.execution == "synchronous")
                self._functions.steps.run_init(state, self._functions.settings, 0, 0)
                self._update(state, nothing)
                for each in self._functions.folds:
                    each.fold_all(state, self._functions.settings, 0, np.zeros((1, WORDS), np.int64), 0)
            dist.barrier(group=self._exchange.group)

    def _initialise(self) -> None:
        """Call `init` colour after colour, in which no two vertices conflict, and send what it sets."""
        state = self._state(0)
        for (low, high), crossing in zip(itertools.pairwise(self._spans), self._crossing, strict=True):
            for colour in range(low, high):
                first, end = (int(each) for each in self._bounds[colour : colour + 2])
                self._functions.steps.run_init(state, self._functions.settings, first, end)
            if crossing:
                self._share((low, high))
        self._send_signals()

    def _restart(self, earlier: Restartable) -> None:
        """See `ChromaticEngine`; each worker has the values of all vertices here."""
        assert self._program.restart is not None
        values = self._whole_fields([True] * self._exchange.size)
        self._program.restart(values, earlier)
        there = self._numbers >= 0
        for name, each in values.items():
            self.fields[name][there] = each[self._numbers[there]]
        earlier.set_messages(self.messages, self._ends)
        own = len(self._order)
        self._signals[:own] = np.where(earlier.changed[self._numbers[:own]], ONE, 0)
        self._signals[own:] = 0
        self._set_largest()
        for group in self._ghosts.groups:
            group.settle()

    def _send_signals(self) -> None:
        """Move signals to the owners; nobody reads them where each step updates all vertices, unless in blocks."""
        scheduler, blocks = self._params.scheduler, self._splash is not None
        if scheduler != "sweep" or blocks:
            one = ONE if scheduler == "fifo" and not blocks else 0
            self._ghosts.send_signals(self._signals, self._largest, BLOCK, self._routes, one)

    def _step(self, step: int, queue: Queue) -> NDArray[np.int64]:
        state = self._state(step, self._params.execution == "synchronous")
        sums = np.zeros((1, WORDS), np.int64)
        for low, high, crossing, some in self._parts(step, queue):
            if self._splash is not None:  # the signals of one colour say where the trees of the next begin
                sums += self._updated(state, some)
                if crossing:
                    self._share((low, high))
                    self._send_signals()
                continue
            border = int(np.searchsorted(some.vertices, self._borders[low])) if high - low == 1 else len(some.vertices)
            interior = some.vertices[border:]
            if crossing and len(interior) >= _LEAST_INTERIOR and self._program.consistency != "full":
                sums += self._updated(state, _one_colour(some.vertices[:border]))
                sums += self._update_while_sending(state, interior, (low, high))
                continue
            sums += self._updated(state, some)
            if crossing:
                self._share((low, high), border > 0)
        if self._splash is None:
            self._send_signals()
        return sums

    def _parts(self, step: int, queue: Queue) -> Iterator[tuple[int, int, bool, Queue]]:
        """First colour, end, whether values may travel then, and active vertices: of each span, or shuffled colour."""
        if self._program.shuffled and self._params.scheduler == "sweep" and self._splash is None:
            full = self._program.consistency == "full" and bool(self._border_colours.any())
            for place, colour in enumerate(self._colour_order(step).tolist()):
                vertices = queue.vertices[queue.starts[place] : queue.starts[place + 1]]
                crossing = full or bool(self._border_colours[colour])
                yield colour, colour + 1, crossing and self._program.consistency != "vertex", _one_colour(vertices)
            return
        for (low, high), crossing in zip(itertools.pairwise(self._spans), self._crossing, strict=True):
            starts = queue.starts[low : high + 1]
            yield low, high, crossing, Queue(queue.vertices[starts[0] : starts[-1]], starts - starts[0], 0)

    def _update_while_sending(
        self, state: Any, interior: NDArray[np.int32], colours: tuple[int, int]
    ) -> NDArray[np.int64]:  # fmt: skip
        """Update the interior of a colour while the values of its border travel."""
        travelling = self._sender.submit(self._exchange.post, self._ghosts.messages(colours), VALUES)
        self._settle(colours)
        try:
            sums = self._updated(state, _one_colour(interior))
        finally:
            received = travelling.result()
        self._ghosts.take(received, colours)
        return sums

    def _updated(self, state: Any, queue: Queue) -> NDArray[np.int64]:
        if not len(queue.vertices):
            return np.zeros((1, WORDS), np.int64)
        return np.asarray(self._update(state, queue).sum(axis=0, keepdims=True))

    def _share(self, colours: tuple[int, int], changed: bool = True) -> None:
        """Send what has changed of a span of colours, and take what others send.

        Args:
            colours: its first colour, and the one behind its last.
            changed: vertices of the border were updated.
        """
        if self._program.consistency == "full":  # neighbours of the colour have changed as well
            every = (0, len(self._bounds) - 1)
            for back in (True, False):
                self._ghosts.take(self._exchange.post(self._ghosts.messages(every, back), VALUES), every, back)
            self._ghosts.groups[0].settle()
            return
        nothing = [np.empty(0, np.uint8)] * self._exchange.size
        messages = self._ghosts.messages(colours) if changed else nothing
        self._settle(colours)
        self._ghosts.take(self._exchange.post(messages, VALUES), colours)

    def _settle(self, colours: tuple[int, int]) -> None:
        """Note that others have the border of some colours as it is."""
        for colour in range(*colours):
            self._ghosts.groups[0].settle_range(int(self._bounds[colour]), int(self._borders[colour]))

    def _agreed(self, figures: StepFigures) -> StepFigures:
        counts = [figures.updates, figures.arcs, figures.top, figures.save, figures.stop]
        mine = [figures.sums.ravel(), figures.largest.view(np.int64), np.array(counts)]
        all_figures = self._exchange.everyone(np.concatenate(mine), _FIGURES, alike=True)
        each = all_figures.reshape(self._exchange.size, -1)
        sums = each[:, : figures.sums.size].sum(axis=0).reshape(figures.sums.shape)
        largest = np.ascontiguousarray(each[:, figures.sums.size : -5]).view(np.float64).max(axis=0)
        updates, arcs = each[:, -5:-3].sum(axis=0).tolist()
        return StepFigures(sums, largest, updates, arcs, *each[:, -3:].max(axis=0).tolist())

    def _resumed(self) -> RunPosition | None:
        position = super()._resumed()
        for group in self._ghosts.groups:
            group.settle()
        return position

    def _by_vertex(self) -> Fields:
        """Complete on the first worker; empty on the others."""
        return self._whole_fields([rank == 0 for rank in range(self._exchange.size)])

    def _whole_fields(self, ranks: Sequence[bool]) -> dict[str, NDArray[Any]]:
        """Values of all vertices by name, on some workers; nothing on the others."""
        made: dict[str, NDArray[Any]] = {}
        for name, values in self.fields.items():
            own = values[self._own_places]
            received = self._exchange.swap([own if each else own[:0] for each in ranks], _RESULTS)
            if ranks[self._exchange.rank]:
                made[name] = np.empty((self._vertices, *values.shape[1:]), values.dtype)
                for rank, each in enumerate(received):
                    made[name][self._all_owners == rank] = each
        return made

    def _by_slot(self) -> Fields:
        """Complete on the first worker, of a program whose runs others can start from; empty on the others."""
        made: dict[str, NDArray[Any]] = {}
        if not self.messages or self._kept_slots is None:
            return made
        slots, counts = self._kept_slots
        first, others = self._exchange.rank == 0, self._exchange.size - 1
        owners = np.repeat(self._all_owners, counts)
        for name, values in self.messages.items():
            own = np.stack([values[slots], values[slots ^ 1]], axis=1)
            received = self._exchange.swap([own.ravel()] + [own[:0].ravel()] * others, _RESULTS)
            if first:
                whole = np.empty((len(owners), 2, *values.shape[1:]), values.dtype)
                for rank, each in enumerate(received):
                    whole[owners == rank] = each.reshape(-1, *whole.shape[1:])
                made[name] = whole.reshape(-1, *values.shape[1:])
        return made

    def _fault(self) -> tuple[int, int]:
        """The first one of all workers."""
        found = self._exchange.everyone(np.array([super()._fault()], np.int64), _FIGURES, alike=True)
        number, vertex = min(found.tolist())
        return number, vertex


def _one_colour(vertices: NDArray[np.int32]) -> Queue:
    return Queue(vertices, np.array([0, len(vertices)]), 0)
