"""The index stage on the members of an engine: the same files.

No task holds more than a part of the rows, a range of ids, or a block of the graph; the stage's process holds counts.

1. Each part of a file is read, and its rows are left in the dataset's folder.
2. Ids go to ranges by their bytes, where they are sorted: an id's rank is its place in its range and those before.
3. Rows ask the ranges for the ranks of their ends, and go to tasks by a hash of their edge, where they are merged.
4. Ranges count the degrees. Of how many ids have which degree in which range, each range's final numbers follow.
5. Edges ask for final numbers; those of vertices above `max_degree` go to tasks that choose which stay.
6. Arcs and vertices go to blocks of rows, where they are sorted; a task for each file joins their parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.engines.task_session import Step, TaskSession, open_tasks
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.part_files import part_uri
from superworkflow.infra.storage.scratch import Scratch
from superworkflow.tasks.index import IndexParams
from superworkflow.tasks.index import edge_parts as steps
from superworkflow.tasks.index.row_parts import FilePart, RowPart, ScannedRows, parts_of, scan_rows, whole_file
from superworkflow.tasks.lib.edge_list.diagnose import bad_row, duplicate_edge, no_edges, too_heavy
from superworkflow.tasks.lib.edge_list.dialect import Dialect
from superworkflow.tasks.lib.edge_list.edge_files import EdgeFile, detect_files, opened
from superworkflow.tasks.lib.edge_list.input_warnings import log_warnings, warning_stats
from superworkflow.tasks.lib.graph.graph_writer import VERTICES, VERTICES_FORMAT, VERTICES_ROW_GROUP
from superworkflow.tasks.lib.in_parts.id_ranges import (
    IdColumn,
    PartEndpoints,
    Ranges,
    bounds_of,
    ids_name,
    look_up,
    number_ids,
    send_ids,
    send_names,
)
from superworkflow.tasks.lib.in_parts.joined_files import ArrayFile, TableFile, join_file
from superworkflow.tasks.lib.in_parts.task_outputs import TaskOutputs

RANGE_ROWS = 1 << 22
"""Rows whose ids are in a range, about, and rows whose edges a task has."""
BLOCK_ARCS, BLOCK_VERTICES = 1 << 22, 1 << 20
"""Arcs and vertices of a block, about."""
FILES = ("indptr.npy", "indices.npy", "vertices.parquet", "weights.npy")
"""Files of a graph; the last one where edges have weights."""
_LEAST_ROWS = 1 << 18
"""Rows of a task, unless there are fewer tasks than slots."""


def run(job: StageRun[IndexParams]) -> Output:
    """Index one edge list; see `tasks.index.run`."""
    source, params = job.sources["edges"], job.params
    files = [(part_uri(source, name), found) for name, found in detect_files(source, params, partial(opened, source))]
    job.progress.log(files[0][1].describe())
    log_warnings(job.progress, files[0][1].warnings)
    with open_tasks(job) as session:
        return _Maker(job, session, files).make()


class _Maker:
    def __init__(self, job: StageRun[IndexParams], session: TaskSession, files: list[tuple[str, Dialect]]):
        self._job, self._session, self._files, self._dialect = job, session, files, files[0][1]
        self._kept, self._where = TaskOutputs(job.output.location.uri), job.sources["edges"].uri

    def make(self) -> Output:
        job, params, dialect, session = self._job, self._job.params, self._dialect, self._session
        job.output.claim(FILES)
        parts, scanned = self._scan()
        rows, dropped = (sum(getattr(each, name) for each in scanned) for name in ("rows", "dropped"))
        if dropped:
            job.progress.log(f"{dropped} rows without an id are left out")
        if not rows:
            raise no_edges(0, dialect, self._where)
        tasks = max(-(-rows // RANGE_ROWS), min(session.slots, rows // _LEAST_ROWS), 1)
        ranges = self._rank(parts, [one for each in scanned for one in each.samples], tasks)
        limit, weighted = params.max_degree, dialect.weighted
        work = steps.EdgeWork(
            self._kept, params.directed, weighted, steps.RULES[params.duplicates], tasks, self._bases, limit,
            params.seed,
        )  # fmt: skip
        items = [(PartEndpoints(part, place, (ranges, ranges)), part) for place, part in enumerate(parts)]
        merged = session.exchange(
            [item for item, _ in items], send_names,
            Step(len(ranges), partial(look_up, self._kept, [ranges], [self._bases])),
            Step(len(items), partial(steps.send_rows, work, items)), Step(tasks, partial(steps.merge_rows, work)),
        )  # fmt: skip
        if heavy := [each.heavy for each in merged if each.heavy is not None]:
            raise too_heavy([self._labels(min(heavy))], params.directed, self._where)
        edges, loops = (sum(getattr(each, name) for each in merged) for name in ("edges", "self_loops"))
        if not edges:
            raise no_edges(rows, dialect, self._where)
        if (duplicates := rows - loops - edges) and params.duplicates == "error":
            raise self._fault(duplicates)
        every = range(tasks)
        degrees = session.exchange(
            every, partial(steps.send_degrees, work), Step(len(ranges), partial(steps.count_degrees, work))
        )  # fmt: skip
        numbers, above = steps.first_numbers(degrees), sum(each.above for each in degrees)
        session.exchange(
            every, partial(steps.send_ranks, work), Step(len(ranges), partial(steps.answer, work, numbers)),
            Step(tasks, partial(steps.renumber, work)),
        )  # fmt: skip
        trimmed = 0
        if above:
            choose, drop = partial(steps.choose, work), partial(steps.drop, work)
            trimmed = sum(
                session.exchange(every, partial(steps.send_owned, work), Step(tasks, choose), Step(tasks, drop))
            )
        if loops:
            job.progress.log(f"{loops} edges from a node to itself are left out")
        job.progress.log(f"{self._bases[-1]} vertices, {edges - trimmed} edges; writing rows")
        cut = steps.cut_blocks(degrees, BLOCK_ARCS, BLOCK_VERTICES)
        blocks = steps.Blocks(work, cut, numbers, bool(above))
        side = dialect.sides[0] if dialect.sides else ""
        found = session.exchange(
            [*(("edges", task) for task in every), *(("ids", place) for place in range(len(ranges)))],
            partial(steps.send_arcs, blocks), Step(len(cut) - 1, partial(steps.write_block, blocks, side)),
        )  # fmt: skip
        written = list(self._written([each.arcs for each in found], weighted))
        job.output.adopt(session.run_tasks(join_file, written))
        return Output(
            rows=edges - trimmed,
            stats={
                "vertices": int(self._bases[-1]),
                "edges": edges - trimmed,
                "directed_edges": sum(each.arcs for each in found),
                "directed": params.directed,
                "weighted": weighted,
                "max_degree": max(each.longest for each in found),
                "isolated_vertices": sum(each.isolated for each in found),
                "sinks": sum(each.sinks for each in found),
                "bytes": job.output.bytes_written,
                "rows_read": rows,
                "self_loops_dropped": loops,
                "duplicates_merged": duplicates,
                "max_degree_seen": max(each.longest for each in degrees),
                "trimmed_vertices": above,
                "trimmed_edges": trimmed,
                **dialect.name_stats(dropped, sum(each.sources for each in found)),
                **warning_stats(dialect.warnings),
            },
        )

    def _scan(self) -> tuple[list[RowPart], list[ScannedRows]]:
        """Read all rows, files with quotes as a whole: their lines may be no rows."""
        pieces = [part for i, (uri, each) in enumerate(self._files) for part in parts_of(Location.of(uri), each, i)]
        for attempt in range(2):
            parts = [RowPart(self._kept, n, *self._files[each.file], each) for n, each in enumerate(pieces)]
            scanned = self._session.run_tasks(scan_rows, parts)
            if not any(each.bad for each in scanned):
                return parts, scanned
            if attempt or self._dialect.kind != "csv" or all(part.is_whole for part in pieces):
                break
            self._job.progress.log("fields are quoted; one task reads the whole of a file")
            pieces = [FilePart(file=i) for i in range(len(self._files))]
        raise self._fault()

    def _rank(self, parts: Sequence[RowPart], samples: list[str], wanted: int) -> Ranges:
        ranges = Ranges(0, bounds_of(samples, wanted), 0, latent=True, keeps_rows=False)
        columns = [IdColumn(part, column, ranges) for part in parts for column in range(2)]
        found = self._session.exchange(columns, send_ids, Step(len(ranges), partial(number_ids, self._kept, [ranges])))
        self._bases = np.cumsum([0, *(each.count for each in found)], dtype=np.int64)
        return ranges

    def _written(self, arcs: list[int], weighted: bool) -> Iterator[ArrayFile | TableFile]:
        """The dataset's files."""
        parts = {
            file: tuple(steps.part_name(file, place) for place in range(len(arcs)))
            for file in ("indptr", "indices", "weights", "vertices")
        }
        vertices, bases = int(self._bases[-1]), tuple(a for a, _ in pairwise(np.cumsum([0, *arcs]).tolist()))
        yield ArrayFile(self._kept, "indptr.npy", "<i8", (vertices + 1,), parts["indptr"], bases)
        yield ArrayFile(self._kept, "indices.npy", "<i4", (sum(arcs),), parts["indices"])
        options = {**VERTICES_FORMAT, "row_group_size": VERTICES_ROW_GROUP}
        yield TableFile(self._kept, "vertices.parquet", VERTICES, options, vertices, parts["vertices"])
        if weighted:
            yield ArrayFile(self._kept, "weights.npy", "<f4", (sum(arcs),), parts["weights"])

    def _labels(self, edge: int) -> tuple[str, str]:
        ends = [int(side[0]) for side in steps.ends_of(np.array([edge], np.uint64))]
        places = np.searchsorted(self._bases, ends, "right") - 1
        given = [(int(place), int(end - self._bases[place])) for place, end in zip(places, ends, strict=True)]
        source, target = self._session.run_tasks(partial(_label, self._kept), given)
        return source, target

    def _fault(self, duplicates: int = 0) -> UserError:
        """The error for the first row that is wrong, found by one task that reads all of them."""
        self._session.run_tasks(_raise_for, [Faulty(self._where, self._files, self._job.params.directed, duplicates)])
        raise AssertionError("the search for a bad row always ends in an error")


def _label(kept: TaskOutputs, item: tuple[int, int]) -> str:
    place, row = item
    return str(kept.table(ids_name(0, place)).column(0)[row].as_py())


@dataclass(frozen=True)
class Faulty:
    """Files with a row to find: one that cannot be read, or one that repeats an edge where there are `duplicates`."""

    uri: str
    files: list[tuple[str, Dialect]]
    directed: bool
    duplicates: int


def _raise_for(file: Faulty) -> None:
    def local() -> Iterator[EdgeFile]:
        for uri, dialect in file.files:
            with Scratch("search") as folder:
                path = whole_file(Location.of(uri), dialect, folder)
                yield EdgeFile(path, replace(dialect, gzipped=False) if dialect.kind == "parquet" else dialect, uri)

    if file.duplicates:
        raise duplicate_edge(local(), file.directed, file.uri, file.duplicates)
    raise bad_row(local(), file.uri)
