"""Numbers of labels in each split, from the first rows of their file: for plans, not for results."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.text_file import open_unpacked
from superworkflow.tasks.heterograph.file_sample import table_stats
from superworkflow.tasks.lib.gnn.objective.splits import BY_NAME

_LOOK_BYTES, _ROWS = 1 << 20, 1 << 16
_BETWEEN = re.compile(r"[\t,\s]\s*")


def label_stats(source: Source, look_bytes: int) -> dict[str, int | bool]:
    """Stats of a source that is a local file or folder, for `Input.stats`; none of any other.

    Returns:
        Those of `table_stats`; where rows have splits also `train_nodes` and `validation_nodes`.
    """
    found = table_stats(source, look_bytes)
    path = source.location.local_path
    if path is None or source.is_folder:
        return found
    try:
        splits, rows = _splits(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return found  # who reads it says what is wrong
    named = [BY_NAME[each] for each in splits if each in BY_NAME]
    if not named:
        return found
    scale = int(found.get("rows", rows)) / rows
    return found | {f"{name}_nodes": round(scale * named.count(name)) for name in ("train", "validation")}


def _splits(path: Path) -> tuple[list[str], int]:
    """Texts of the third column in the first rows, or of the column `split`, and the number of these rows."""
    with path.open("rb") as stream:
        is_parquet = stream.read(4) == b"PAR1"
    if is_parquet:
        with pq.ParquetFile(path) as file:
            if "split" not in file.schema_arrow.names:
                return [], 1
            batch = next(file.iter_batches(_ROWS, columns=["split"], use_threads=False), None)
            texts = [] if batch is None else [str(each).lower() for each in batch.column(0).to_pylist()]
            return texts, max(1, len(texts))
    with open_unpacked(path, str(path)) as stream:
        lines = stream.read(_LOOK_BYTES).decode("utf-8-sig", "replace").splitlines()
    fields = [_BETWEEN.split(line.strip()) for line in lines if line.strip()]
    return [each[2].strip('"').lower() for each in fields if len(each) > 2], max(1, len(fields))
