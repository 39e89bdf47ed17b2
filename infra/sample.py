"""What a look at the beginning of a file says about all of it: for plans, not for results."""

from __future__ import annotations

import zlib
from pathlib import Path

import pyarrow.parquet as pq

SAMPLE_BYTES = 1 << 20


def sample_table(path: Path) -> dict[str, int | bool]:
    """Estimate the rows of a table in a file.

    Returns:
        `bytes`, `gzipped`, `text_bytes` (uncompressed) and `rows`; exact for Parquet and for files shorter than the
        sample, otherwise as if the whole file were like its first MiB. Of text also `kinds`: different values in the
        second column of the sample.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(SAMPLE_BYTES)
    if head[:4] == b"PAR1":
        return {"bytes": size, "gzipped": False, "text_bytes": size, "rows": pq.ParquetFile(path).metadata.num_rows}
    gzipped = head[:2] == b"\x1f\x8b"
    text = zlib.decompressobj(wbits=31).decompress(head) if gzipped else head
    text_bytes = round(size * len(text) / max(1, len(head)))
    lines = max(1, text.count(b"\n"))
    rows = lines if len(head) == size else round(text_bytes * lines / max(1, len(text)))
    kinds = len(set(_second_fields(text)))
    return {"bytes": size, "gzipped": gzipped, "text_bytes": text_bytes, "rows": rows, "kinds": kinds}


def _second_fields(text: bytes) -> list[bytes]:
    """Second field of each whole line that is no comment."""
    lines = [line for line in text.split(b"\n") if line[:1] not in (b"", b"#", b"%")]
    delimiter = next((each for each in (b"\t", b",") if lines and each in lines[0]), None)
    fields = (line.split(delimiter, 2) for line in lines)
    return [each[1].strip() for each in fields if len(each) > 1]
