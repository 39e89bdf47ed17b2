"""Batches of walkers: in arrays, and in bytes between tasks.

In bytes a batch is three int64 counts, then its records, its words and its tokens, in the machine's byte order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from superworkflow.tasks.walk.kernels.edge_filter_size import has_tries
from superworkflow.tasks.walk.partitioned.advance import ENDED, advance, begin, sort_by_task, walker_type
from superworkflow.tasks.walk.partitioned.step_rules import StepRules
from superworkflow.tasks.walk.partitioned.vertex_ranges import VertexRanges, VertexRows

LIST_WORDS = 256
"""Most darts that a walker asks about at a time."""
ROW_WORDS = 1 << 23
"""Words beyond which a task sends no further row."""
_COUNTS = 3 * 8


@dataclass(frozen=True)
class WalkRules:
    """Rules of a walk, in addition to the graph.

    Args:
        p, q: see `Walker`; 1 and 1 for first-order walks.
        length: vertices of a walk, its start included.
        directed: see `Walker`.
        seed: see `Walker`.
        vertex: dtype of vertices, that of the graph's indices.
    """

    p: float
    q: float
    length: int
    directed: bool
    seed: int
    vertex: str

    @property
    def second_order(self) -> bool:
        return not (self.p == 1 and self.q == 1)


class WalkerBatch(NamedTuple):
    """Walkers, and in the same order the words and tokens that they carry.

    Args:
        walkers: records of `walker_type`.
        words: int64, the open darts or the row of a step that is not decided yet.
        tokens: vertices visited since the walks were last written down.
    """

    walkers: npt.NDArray[Any]
    words: npt.NDArray[np.int64]
    tokens: npt.NDArray[Any]

    @classmethod
    def unpack(cls, blobs: Iterable[bytes], rules: WalkRules) -> WalkerBatch:
        """All the walkers of some blobs, in their order."""
        kind, vertex = walker_type(rules.vertex), np.dtype(rules.vertex)
        walkers, words, tokens = [np.empty(0, kind)], [np.empty(0, np.int64)], [np.empty(0, vertex)]
        for blob in blobs:
            n, n_words, n_tokens = np.frombuffer(blob, np.int64, 3).tolist()
            offset = _COUNTS
            walkers.append(np.frombuffer(blob, kind, n, offset))
            offset += n * kind.itemsize
            words.append(np.frombuffer(blob, np.int64, n_words, offset))
            offset += n_words * 8
            tokens.append(np.frombuffer(blob, vertex, n_tokens, offset))
        return cls(np.concatenate(walkers), np.concatenate(words), np.concatenate(tokens))

    def pack(self) -> bytes:
        counts = np.array([len(self.walkers), len(self.words), len(self.tokens)], np.int64)
        return b"".join(part.tobytes() for part in (counts, self.walkers, self.words, self.tokens))

    def split(self, to: npt.NDArray[np.int32], tasks: int) -> Iterator[tuple[int, bytes]]:
        """(task, its walkers in bytes) for each task that is the destination ``to`` of a walker."""
        out = WalkerBatch(np.empty_like(self.walkers), np.empty_like(self.words), np.empty_like(self.tokens))
        begins = sort_by_task(self.walkers, self.words, self.tokens, to, tasks, out.walkers, out.words, out.tokens)
        for task in range(tasks):
            (a, a_words, a_tokens), (b, b_words, b_tokens) = begins[task : task + 2].tolist()
            if b > a:
                yield (
                    task,
                    WalkerBatch(out.walkers[a:b], out.words[a_words:b_words], out.tokens[a_tokens:b_tokens]).pack(),
                )

    @property
    def underway(self) -> WalkerBatch:
        """Walkers that have not ended, without the vertices that they have visited."""
        kept = self.walkers["phase"] != ENDED
        words = self.words[np.repeat(kept, self.walkers["words"])]
        walkers = self.walkers[kept]
        walkers["tokens"] = 0
        return WalkerBatch(walkers, words, self.tokens[:0])

    @property
    def visited(self) -> WalkerBatch:
        """Walkers that carry visited vertices, with these and without words."""
        walkers = self.walkers[self.walkers["tokens"] > 0]
        walkers["words"] = 0
        return WalkerBatch(walkers, self.words[:0], self.tokens)


def begin_walks(
    first: int,
    last: int,
    base: int,
    starts: npt.NDArray[np.int64],
    n_starts: int,
    ranges: VertexRanges,
    rules: WalkRules,
) -> tuple[WalkerBatch, npt.NDArray[np.int32]]:
    """The walks ``first`` to ``last - 1`` of the batch from walk ``base`` on, and the task of each."""
    walkers = np.zeros(last - first, walker_type(rules.vertex))
    batch = WalkerBatch(walkers, np.empty(0, np.int64), np.empty(last - first, rules.vertex))
    to = np.empty(last - first, np.int32)
    begin(np.uint64(rules.seed), starts, np.uint64(n_starts), first, base, ranges.cuts, ranges.copies, walkers,
          batch.tokens, to)  # fmt: skip
    return batch, to


def advance_walks(
    batch: WalkerBatch, rows: VertexRows, task: int, ranges: VertexRanges, rules: WalkRules
) -> tuple[WalkerBatch, npt.NDArray[np.int32]]:
    """Advance each walker as far as the rows of a task allow; the walkers, and the task that each needs next."""
    n = len(batch.walkers)
    to, cursor = np.empty(n, np.int32), np.zeros(5, np.int64)
    out = WalkerBatch(
        np.empty_like(batch.walkers),
        np.empty(len(batch.words) + 2 * n + 64, np.int64),
        np.empty(len(batch.tokens) + 2 * n + 2 * rules.length, rules.vertex),
    )
    tries = has_tries(rules.q, int(ranges.cuts[-1]), rules.directed)
    steps = StepRules(
        rules.p, rules.q, rules.length, rules.directed, rules.second_order, tries, LIST_WORDS, ROW_WORDS
    )  # fmt: skip
    while not advance(batch, out, to, cursor, task, ranges, rows, steps):
        # The walker that did not fit is advanced again, with twice the space.
        words, tokens = (np.concatenate([have, np.empty_like(have)]) for have in (out.words, out.tokens))
        out = out._replace(words=words, tokens=tokens)
    return out._replace(words=out.words[: cursor[3]], tokens=out.tokens[: cursor[4]]), to
