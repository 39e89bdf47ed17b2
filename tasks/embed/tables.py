"""The two embedding tables: their first values, and their checkpoints."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.safe_names import fault_of
from superworkflow.tasks.lib.formats.npy import read_header
from superworkflow.tasks.lib.kernels.huge_pages import on_huge_pages

Floats = NDArray[np.float32]
STATE = "state.json"


class EmbeddingTables(NamedTuple):
    """Centre and context vectors, float32 [rows, dimensions], and AdaGrad's sums, float32 [rows] or empty."""

    centre: Floats
    context: Floats
    centre_sum: Floats
    context_sum: Floats

    @classmethod
    def random(cls, rows: int, dimensions: int, seed: int, adagrad: bool) -> EmbeddingTables:
        """Centres uniform in [-1/2d, 1/2d), contexts zero, as word2vec begins."""
        centre, context = _aligned(rows, dimensions), _aligned(rows, dimensions)
        np.random.Generator(np.random.Philox(seed)).random(out=centre, dtype=np.float32)
        centre -= np.float32(0.5)
        centre /= np.float32(dimensions)
        context[:] = 0
        for table in (centre, context):
            on_huge_pages(table)
        sums = rows if adagrad else 0
        return cls(centre, context, np.zeros(sums, np.float32), np.zeros(sums, np.float32))


def _aligned(rows: int, dimensions: int) -> Floats:
    """Memory of a table, aligned to a cache line: if 16 divides `dimensions`, no group of 16 floats spans two lines."""
    room = np.empty(rows * dimensions + 16, np.float32)
    start = -room.ctypes.data % 64 // 4
    return room[start : start + rows * dimensions].reshape(rows, dimensions)


@dataclass
class EmbeddingPosition:
    """Position of training: shards finished of an epoch, and the loss sampled so far in that epoch."""

    epoch: int = 0
    shard: int = 0
    loss: float = 0.0
    weight: float = 0.0
    losses: list[float | None] = field(default_factory=list)
    """Mean loss of a pair in each finished epoch; None where no walk with a pair was sampled."""


def save_checkpoint(folder: Path, tables: EmbeddingTables, position: EmbeddingPosition) -> None:
    """Write tables under names of their own, then switch to them in one rename; a crash leaves the old or the new."""
    folder.mkdir(parents=True, exist_ok=True)
    tag = f"{position.epoch}-{position.shard}"
    files = {name: f"{name}-{tag}.npy" for name in tables._asdict()}
    for name, values in tables._asdict().items():
        with (folder / files[name]).open("wb") as stream:
            np.save(stream, values, allow_pickle=False)
    temporary = folder / f"{STATE}.tmp"
    temporary.write_text(json.dumps({"position": asdict(position), "files": files}))
    temporary.replace(folder / STATE)
    for path in folder.glob("*.npy"):
        if path.name not in files.values():
            path.unlink()


def load_checkpoint(folder: Path, tables: EmbeddingTables) -> EmbeddingPosition | None:
    """Read the checkpoint into `tables`; None if there is none that is complete and of their shape."""
    try:
        state = json.loads((folder / STATE).read_text())
        if any(fault_of(name) for name in state["files"].values()):
            return None
        with ExitStack() as opened:
            streams = {
                name: opened.enter_context((folder / state["files"][name]).open("rb")) for name in tables._asdict()
            }
            for name, values in tables._asdict().items():
                shape, dtype = read_header(streams[name])
                whole = streams[name].tell() + values.nbytes == (folder / state["files"][name]).stat().st_size
                if shape != values.shape or dtype != values.dtype or not whole:
                    return None
            for name, values in tables._asdict().items():
                streams[name].readinto(values.data.cast("B"))  # a mapped file would take as much memory again
        return EmbeddingPosition(**state["position"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def warm_start(centre: Floats, initial: Dataset, graph: Dataset, remap: NDArray[np.int32]) -> int:
    """Set the centre vectors of the vertices whose label is in `initial`; returns their number.

    Raises:
        UserError: the vectors have another length, or no label is shared.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    with initial.parquet("embeddings.parquet") as file:
        length = file.schema_arrow.field("vector").type.list_size
        if length != centre.shape[1]:
            raise UserError(
                f"the earlier embeddings have {length} dimensions", where="embed.dimensions", value=centre.shape[1],
                remedy=f"Set it to {length}, or start without earlier embeddings",
            )  # fmt: skip
        labels = graph.table("vertices.parquet", ["node"])["node"].cast(pa.string()).combine_chunks()
        matched = 0
        for batch in file.iter_batches(1 << 16, columns=["node", "vector"]):
            vertex = pc.index_in(batch["node"].cast(pa.string()), value_set=labels).to_numpy(zero_copy_only=False)
            matches = np.flatnonzero(~np.isnan(vertex) if vertex.dtype.kind == "f" else vertex >= 0)
            row = remap[vertex[matches].astype(np.int64)]
            matches, row = matches[row >= 0], row[row >= 0]
            vectors = batch["vector"].flatten().to_numpy().reshape(-1, length)
            centre[row] = vectors[matches]
            matched += len(row)
    if not matched:
        raise UserError(
            "the earlier embeddings share no node label with this graph", where="initial", value=initial.uri,
            remedy="Give embeddings of the same nodes, or start without them",
        )  # fmt: skip
    return matched
