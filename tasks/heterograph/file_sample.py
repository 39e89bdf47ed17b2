"""Sample of parts of a file, extrapolated to all of it: for plans, not for results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.text_file import GZIP, unpacked

SAMPLE_BYTES = 32 << 20
"""Text that is looked at; shorter files are read as a whole."""
_PARTS = 32
_COUNTED = 40
"""Values that occur more often than this in the sample are as many in the whole, and need no estimate."""
_DEGREES = 60
_SMOOTH, _TOTAL = 0.1, 1000.0
"""Weights of smoothness and of the known total; chosen on power-law and uniform random graphs (see the tests)."""


def table_stats(source: Source, look_bytes: int) -> dict[str, int | bool]:
    """Stats of a source that is a local file or folder, by `sample_tables`, for `Input.stats`; none of any other."""
    if source.location.local_path is None:
        return {}
    if not source.is_folder:
        return sample_table(source.location.local_path, look_bytes)
    return sample_tables([Path(source.members[name].location.local_path or "") for name in source.files()], look_bytes)


def sample_tables(paths: Sequence[Path], sample_bytes: int) -> dict[str, int | bool]:
    """Estimate the size of a table in part files: sums, of which up to `_PARTS` files are looked at."""
    paths = [path for path in paths if path.stat().st_size]
    chosen = [paths[i] for i in np.unique(np.linspace(0, len(paths) - 1, _PARTS).astype(int))]
    sizes, size = sum(path.stat().st_size for path in chosen), sum(path.stat().st_size for path in paths)
    sampled = [_sampled(path, max(1 << 16, sample_bytes // len(chosen))) for path in chosen]
    scale = size / sizes
    found: dict[str, int | bool] = {"bytes": size, "gzipped": any(facts["gzipped"] for facts, _, _ in sampled)}
    for key in ("text_bytes", "unpacked_bytes", "rows"):
        if key in sampled[0][0]:
            found[key] = round(scale * sum(int(facts.get(key, 0)) for facts, _, _ in sampled))
    looked_at = sum(share * int(facts["rows"]) for facts, _, share in sampled)
    return {
        **found,
        **_columns([part for _, parts, _ in sampled for part in parts], looked_at / max(int(found["rows"]), 1)),
    }


def sample_table(path: Path, sample_bytes: int = SAMPLE_BYTES) -> dict[str, int | bool]:
    """Estimate the size of a table in a file, in bounded time.

    Parts all over the file are looked at; of a gzipped one only the beginning can be.

    Args:
        path: text with columns separated by tabs, commas or blanks, also gzipped, or Parquet.
        sample_bytes: how much to look at.

    Returns:
        `bytes`, `gzipped`, `text_bytes` (uncompressed), `rows`; of Parquet `unpacked_bytes`, what its columns take;
        `kinds`, different values in the second column of the sample; `values`, different values in the first two
        columns of the whole file together. The last two are absent where the sample has no two columns. Exact where
        all of the file is looked at.
    """
    facts, parts, share = _sampled(path, sample_bytes)
    return {**facts, **_columns(parts, share)}


def _sampled(path: Path, sample_bytes: int) -> tuple[dict[str, int | bool], list[list[Any]], float]:
    """Facts of a file, the first two columns of parts of it, and their share of its rows."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        magic = stream.read(4)
    if magic == b"PAR1":
        rows, unpacked, parts = _parquet_parts(path, sample_bytes)
        share = sum(len(part[0]) for part in parts) / max(rows, 1)
        found = {"bytes": size, "gzipped": False, "text_bytes": size, "unpacked_bytes": unpacked, "rows": rows}
        return found, parts, share
    gzipped = magic.startswith(GZIP)
    texts, share = _gzip_text(path, size, sample_bytes) if gzipped else _text_parts(path, size, sample_bytes)
    looked_at = sum(len(text) for text in texts)
    lines = sum(text.count(b"\n") + (text[-1:] not in (b"", b"\n")) for text in texts)
    parts = [part for part in map(_parsed, texts) if part]
    facts: dict[str, int | bool] = {
        "bytes": size,
        "gzipped": gzipped,
        "text_bytes": round(looked_at / share) if gzipped else size,
        "rows": max(1, round(lines / share)),
    }
    return facts, parts, share * len(parts) / len(texts)


def _text_parts(path: Path, size: int, most: int) -> tuple[list[bytes], float]:
    """Whole lines of parts all over a file, and their share of it."""
    with path.open("rb") as stream:
        if size <= most:
            return [stream.read()], 1.0
        texts = []
        for part in range(_PARTS):
            stream.seek(part * (size - most // _PARTS) // (_PARTS - 1))
            text = stream.read(most // _PARTS)
            begin = text.find(b"\n") + 1 if part else 0
            texts.append(text[begin : text.rfind(b"\n") + 1])
    return texts, sum(len(text) for text in texts) / size


def _gzip_text(path: Path, size: int, most: int) -> tuple[list[bytes], float]:
    """Whole lines from the beginning of a gzipped file, and their share of it by compressed bytes."""
    with path.open("rb") as raw:
        text = unpacked(raw, str(path))[0].read(most)
        read = raw.tell()
    if len(text) < most:
        return [text], 1.0
    whole = text.rfind(b"\n") + 1
    return [text[:whole]], read / size * whole / len(text)


def _parsed(text: bytes) -> list[Any]:
    """The first two columns of some lines, as Arrow strings; none where these are no table.

    Arrow's own reader of text leaves threads behind that let go of Python's objects later, now and then while the
    interpreter ends, which aborts the process (https://github.com/apache/arrow/issues/34314). What is here starts none.
    """
    try:
        lines = _lines(text)
    except pa.ArrowInvalid:  # not UTF-8
        return []
    lines = lines.filter(pc.invert(pc.match_substring_regex(lines, r"^\s*$|^[#%]")))
    if not len(lines):
        return []
    first = lines[0].as_py()
    delimiter = next((each for each in ("\t", ",") if each in first), None)
    fields = pc.split_pattern(lines, delimiter, max_splits=2) if delimiter else pc.ascii_split_whitespace(lines)
    fields = fields.filter(pc.greater_equal(pc.list_value_length(fields), 2))
    return [pc.list_element(fields, place) for place in (0, 1)] if len(fields) else []


def _lines(text: bytes) -> Any:
    """Each line without blanks around it, as Arrow strings.

    Raises:
        pa.ArrowInvalid: it is not UTF-8.
    """
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    bounds = np.concatenate([[0], ends, [len(text)]]).astype(np.int32)
    lines = pa.Array.from_buffers(pa.string(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(text)])
    lines.validate(full=True)
    return pc.ascii_trim(lines, " \r\n")


def _parquet_parts(path: Path, most: int) -> tuple[int, int, list[list[Any]]]:
    """Rows of a Parquet file, bytes of its values, and its first two columns from groups all over it.

    Raises:
        UserError: it is damaged.
    """
    try:
        opened = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise UserError(
            f"the file cannot be read as Parquet: {error}", where=str(path), remedy="Write or copy it again"
        ) from None
    with opened as file:
        rows, groups = file.metadata.num_rows, file.num_row_groups
        unpacked = sum(file.metadata.row_group(group).total_byte_size for group in range(groups))
        schema = file.schema_arrow
        # Lists, such as features, are no text.
        names = [each.name for each in list(schema)[:2] if not pa.types.is_nested(each.type)]
        names = [name for name in names if schema.names.count(name) == 1]
        wanted = max(1, groups * most // max(most, 16 * rows))  # 16 bytes a row, as of two numbers
        parts = []
        for group in np.unique(np.linspace(0, groups - 1, wanted).astype(int)) if len(names) == 2 else ():
            table = file.read_row_group(int(group), columns=names)
            parts.append([pc.cast(table[name].combine_chunks(), pa.string()) for name in names])
    return rows, unpacked, parts


def _columns(parts: Sequence[list[Any]], share: float) -> dict[str, int | bool]:
    """Different values in the whole, of which the parts are a share, by `estimate_distinct`.

    A value that follows itself in its column counts once: files are often in the order of one column, and parts of them
    then hold all occurrences of a few values.
    """
    if not parts:
        return {}
    columns = [pa.chunked_array([part[place] for part in parts]) for place in (0, 1)]
    turns = pa.chunked_array([_turns(part[place]) for place in (0, 1) for part in parts])
    counts = pc.value_counts(turns).field("counts").to_numpy()
    values = estimate_distinct(counts, share, len(turns) / share)
    if share < 1:
        values = max(min(values, _most(columns)), 1)
    return {"kinds": pc.count_distinct(columns[1]).as_py(), "values": round(values)}


def _turns(column: Any) -> Any:
    """A column without what repeats the value before."""
    changes = pc.not_equal(column[1:], column[:-1])
    return pa.concat_arrays([column[:1], column[1:].filter(changes)])


def _most(columns: Sequence[Any]) -> float:
    """Most different values that numbered labels such as `17` or `user17` can have, by the largest number seen."""
    largest = 0
    for column in columns:
        ends = pc.min_max(column)
        first, last = ends["min"].as_py() or "", ends["max"].as_py() or ""
        prefix = re.match(r"\D*", first)
        start = prefix[0] if prefix else ""
        if not last.startswith(start):
            return float("inf")
        digits = pc.utf8_slice_codeunits(column, len(start))
        if not pc.all(pc.match_substring_regex(digits, "^[0-9]{1,18}$")).as_py():
            return float("inf")
        largest = max(largest, pc.max(pc.cast(digits, pa.int64())).as_py())
    return largest + 1


def estimate_distinct(counts: NDArray[np.int64], share: float, total: float) -> float:
    """Different values in the whole.

    Values that the sample lacks are estimated from how often the others occur in it (Efron and Thisted, 1976): with
    h(d) values of d occurrences, a sample of a share s of all rows sees k occurrences of Σ h(d) Binomial(k; d, s)
    values. This is solved for h >= 0 by least squares over a grid of degrees d. Two facts help where few rows were
    sampled: Σ d h(d) is known, and h is smooth.

    Args:
        counts: occurrences in the sample of each value seen.
        share: of the whole that is in the sample, above 0.
        total: occurrences in the whole of all values together.
    """
    if share >= 1 or not len(counts):
        return float(len(counts))
    from scipy.optimize import nnls  # half a second, which plans of short files do without
    from scipy.stats import binom

    frequent = counts > _COUNTED
    seen = np.bincount(counts[~frequent], minlength=_COUNTED + 1)[1:].astype(float)
    left = total - counts[frequent].sum() / share
    if not seen.sum() or left <= 0:
        return float(len(counts))
    degrees = np.unique(np.round(np.geomspace(1, max(2.0, 2 * _COUNTED / share), _DEGREES)))
    chance = binom.pmf(np.arange(1, _COUNTED + 1)[:, None], degrees, share)
    weight = 1 / np.sqrt(seen + 1)
    bends = np.diff(np.eye(len(degrees)), 2, axis=0) * _SMOOTH / np.sqrt(seen.sum())
    rows = np.vstack([chance * weight[:, None], degrees * _TOTAL / left, bends])
    wanted = np.concatenate([seen * weight, [_TOTAL], np.zeros(len(bends))])
    found, _ = nnls(rows, wanted, maxiter=5000)
    return float(max(len(counts), found.sum() + frequent.sum()))
