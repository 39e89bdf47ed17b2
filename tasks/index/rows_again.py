"""Rows of an edge list, or of one like it, read again after its graph is made: with names as the graph has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from superworkflow.infra.contract.stage import StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.index.run import unpacked_parquet
from superworkflow.tasks.lib.edge_list.diagnose import bad_row
from superworkflow.tasks.lib.edge_list.edge_files import EdgeFile, edge_files, text_rows_of
from superworkflow.tasks.lib.edge_list.edge_times import EdgeTimes
from superworkflow.tasks.lib.edge_list.text_rows import BadRow


class RowsAgain:
    """Rows of an edge list in batches: tables of source, target, weight if the graph has some, and time if it is read.

    Args:
        job: of a stage whose parameters include those of index.
        source: the edge list.
        graph: index dataset, whose prefixes names get.
        timed: read the column `time` of the parameters too.
        whole: rows of all times, whatever the parameters say.

    Attributes:
        times: how times are read; None if they are not.

    Raises:
        UserError: as stage index does; a row that is bad has file and line.
    """

    def __init__(self, job: StageRun[Any], source: Source, graph: Dataset, timed: bool = False, whole: bool = False):
        weighted, both = bool(graph.stats.get("weighted")), bool(graph.stats.get("bipartite"))
        sides = {name: graph.stats[name] for name in ("source_prefix", "target_prefix")} if both else {}
        always = {"from_time": None, "until": None} if whole else {}
        given = {"time": job.params.time or "auto"} if timed else {"time": None} if whole else {}
        params = job.params.model_copy(update={
            "bipartite": both, "weighted": weighted, **sides, **always, **given,
        })  # fmt: skip
        files = unpacked_parquet(edge_files(source, params, job.scratch), job.scratch)
        if timed:
            files = [file._replace(dialect=file.dialect.with_times()) for file in files]
        self.times: EdgeTimes | None = files[0].dialect.times if timed else None
        self._job, self._source, self._files = job, source, files
        self._columns = ["source", "target", *(["weight"] if weighted else []), *(["time"] if timed else [])]

    def __iter__(self) -> Iterator[pa.Table]:
        try:
            for columns, weights in _parsed(self._job, self._files):
                ends = [column.cast(pa.large_string()) for column in columns[:2]]
                middle = [] if weights is None else [pa.array(weights)]
                yield pa.table([*ends, *middle, *columns[2:]], self._columns)
        except (BadRow, pa.ArrowInvalid) as error:
            where = "" if isinstance(error, BadRow) else str(error)
            raise bad_row(self._files, self._source.uri, where) from None


def _parsed(job: StageRun[Any], files: list[EdgeFile]) -> Iterator[Any]:
    if files[0].dialect.kind != "parquet":
        yield from text_rows_of(files)
        return
    from superworkflow.tasks.lib.edge_list import duckdb_reader

    connection = duckdb_reader.connect(max(256 << 20, job.resources.memory // 4), job.threads, job.scratch)
    try:
        yield from duckdb_reader.rows_of(connection, files)
    finally:
        connection.close()
