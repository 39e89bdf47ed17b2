"""Width of a file of features, from its schema and some rows: for plans, not for results."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.text_file import open_unpacked
from superworkflow.tasks.heterograph.feature_columns import MOST_CATEGORIES, NODE_COLUMNS, ZIP, sparse_columns
from superworkflow.tasks.heterograph.file_sample import table_stats
from superworkflow.tasks.heterograph.values import TRUTH_VALUES, is_list, is_text, known
from superworkflow.tasks.lib.formats.text_header import separator_of

_TEXT_BYTES, _ROWS = 1 << 20, 4096


def feature_stats(source: Source, look_bytes: int) -> dict[str, int | bool]:
    """Stats of a source that is a local file or folder, for `Input.stats`; none of any other.

    Returns:
        Those of `table_stats`, and `width`, how many numbers a node becomes, categories counted, and `singles`, how
        many columns are one number; of sparse features
        `present`, their values that are not zero, in place of `rows`, and `rows` only where the file has a row a node.
    """
    if source.location.local_path is None:
        return {}
    members = [Path(source.members[name].location.local_path or "") for name in source.files()]
    path = max(members, key=lambda each: each.stat().st_size) if source.is_folder else source.location.local_path
    with path.open("rb") as stream:
        magic = stream.read(4)
    if magic == ZIP:
        return _matrix(path)
    found, columns = table_stats(source, look_bytes), first_rows(path, magic == b"PAR1")
    if chosen := sparse_columns(list(columns)):
        different = len(pc.unique(columns[chosen[1]]))
        found = {name: value for name, value in found.items() if name != "rows"} | {"present": found.get("rows", 0)}
        return {**found, "width": different}
    node = next((name for name in NODE_COLUMNS if name in columns), next(iter(columns), ""))
    widths = [width_of(values) for name, values in columns.items() if name != node]
    return {**found, "width": sum(widths), "singles": widths.count(1)}


def _matrix(path: Path) -> dict[str, int | bool]:
    """Stats of a matrix that SciPy has saved."""
    try:
        with np.load(path) as file:
            rows, width = map(int, file["shape"])
            return {"bytes": path.stat().st_size, "rows": rows, "width": width, "present": len(file["data"])}
    except (OSError, KeyError, ValueError):
        return {}  # who reads it says what is wrong


def first_rows(path: Path, is_parquet: bool) -> dict[str, Any]:
    """First rows of each column, as Arrow arrays."""
    try:
        if is_parquet:
            with pq.ParquetFile(path) as file:
                batch = next(file.iter_batches(_ROWS, use_threads=False), None)
                return {} if batch is None else dict(zip(batch.schema.names, batch.columns, strict=True))
        with open_unpacked(path, str(path)) as stream:
            text = stream.read(_TEXT_BYTES).decode("utf-8-sig", "replace")
        lines = text.splitlines()[:_ROWS]
        rows = list(csv.reader(lines, delimiter=separator_of(lines[0], path.name))) if lines else []
    except (pa.ArrowException, OSError, csv.Error):
        return {}
    header, whole = (
        [name.strip() for name in rows[0]] if rows else [],
        [row for row in rows if len(row) == len(rows[0])],
    )
    return {name: pa.array([row[place] for row in whole[1:]], pa.string()) for place, name in enumerate(header)}


def width_of(values: Any) -> int:
    """Numbers that a column becomes."""
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if is_list(kind):
        first = values.drop_null()[:1]
        return int(pc.list_value_length(first)[0].as_py()) if len(first) else 0
    if not is_text(kind):
        return 1
    texts = pc.unique(known(values).drop_null())
    try:
        texts.cast(pa.float64())
    except pa.ArrowInvalid:
        is_truth = pc.all(pc.is_in(texts, value_set=pa.array(TRUTH_VALUES, texts.type))).as_py()
        return 1 if is_truth else len(texts) if len(texts) <= MOST_CATEGORIES else 0
    return 1
