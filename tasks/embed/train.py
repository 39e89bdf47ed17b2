"""The training loop: shards in order, threads over chunks of walks, checkpoints, loss, and detection of divergence."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.embed import EmbedParams
from superworkflow.tasks.embed.tables import EmbeddingPosition, EmbeddingTables, save_checkpoint
from superworkflow.tasks.lib.graph.integrity import check_walks, unfit

CHUNK = 256
"""Walks that a thread takes at a time."""
LAST_RATE = 1 / 500
"""The learning rate at the end, as a share of that at the start."""
CHECKPOINT_SECONDS = 600.0
"""Inside an epoch, tables are saved between shards when the last save is older than this."""
NORM_LIMIT = 1e3
"""Norm of a vector above which training has diverged; norms of useful embeddings are below 20."""


class Vocabulary(NamedTuple):
    """The arrays of a `prepare` dataset; `keep` is empty without subsampling."""

    remap: NDArray[Any]
    threshold: NDArray[np.uint32]
    alias: NDArray[Any]
    keep: NDArray[np.float32]

    @classmethod
    def read(cls, dataset: Dataset, vertices: int) -> Vocabulary:
        """Read the vocabulary of a graph of this many vertices.

        Raises:
            UserError: it is of another graph, or its arrays do not fit each other.
        """
        keep = dataset.array("keep.npy", mmap=False) if "keep.npy" in dataset else np.zeros(0, np.float32)
        read = cls(
            dataset.array("remap.npy", mmap=False), dataset.array("negative_threshold.npy", mmap=False),
            dataset.array("negative_alias.npy", mmap=False), keep,
        )  # fmt: skip
        rows = len(read.threshold)
        if len(read.remap) != vertices:
            raise UserError(
                f"the vocabulary does not belong to this graph of {vertices} vertices",
                where=dataset.uri, value=len(read.remap), remedy="Give the graph and the walks that it was made of",
            )  # fmt: skip
        if (
            not rows
            or len(read.alias) != rows
            or len(keep) not in (0, rows)
            or not (0 <= read.alias.min() <= read.alias.max() < rows and read.remap.max() < rows)
        ):
            raise unfit(dataset.uri, "a row beyond the table of negatives", rows)
        return read


class Kernel(Protocol):
    """Trains on some walks, in place."""

    threads: int
    chunk: int

    def train(
        self, walks: NDArray[Any], number: int, epoch: int, first_rate: float, last_rate: float
    ) -> tuple[float, float, float]:
        """(loss, weight of the positive pairs it is over, largest squared norm met); infinite when it diverged."""

    def finish(self) -> None:
        """Bring the host's tables up to date."""


class NumbaKernel:
    """The CPU kernel on the host's tables."""

    chunk = CHUNK

    def __init__(self, tables: EmbeddingTables, vocabulary: Vocabulary, params: EmbedParams, threads: int):
        self.tables, self.vocabulary, self.params, self.threads = tables, vocabulary, params, threads

    def train(
        self, walks: NDArray[Any], number: int, epoch: int, first_rate: float, last_rate: float
    ) -> tuple[float, float, float]:
        """As `Kernel.train`."""
        from superworkflow.tasks.embed.blocks import SkipGramLoss, Steps
        from superworkflow.tasks.embed.kernel import train_walks

        params = self.params
        loss, weight, peak = train_walks(
            walks, number, np.uint64(key(params.seed, epoch)), self.vocabulary, self.tables,
            SkipGramLoss(params.window, float(params.negative), params.shared_negatives, params.block),
            Steps(params.step_bound, first_rate, last_rate, NORM_LIMIT**2),
        )  # fmt: skip
        return float(loss), float(weight), float(peak)

    def finish(self) -> None:
        """Nothing to do: training works on the host's tables."""


def key(seed: int, epoch: int) -> int:
    """Random 64 bits of a seed and an epoch."""
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0])


def train(
    kernel: Kernel,
    tables: EmbeddingTables,
    walks: Dataset,
    vertices: int,
    params: EmbedParams,
    position: EmbeddingPosition,
    checkpoint: Path,
    saved: Callable[[], None],
    progress: Progress,
) -> EmbeddingPosition:
    """Train from `position` to the end; with one thread an interrupted run ends as an uninterrupted one.

    Args:
        kernel, tables: the kernel, and the host's tables.
        walks: dataset to train on.
        vertices: number of vertices of the graph.
        params: the stage's parameters.
        position: where to begin.
        checkpoint, saved: folder of checkpoints, and a callback after each one.
        progress: receives reports.

    Raises:
        UserError: training diverged, or a vertex of the walks is not in the graph.
    """
    names = walks.files("walks-*.npy")
    firsts = np.concatenate([[0], np.cumsum([_length(walks, name) for name in names])]).tolist()
    schedule = Schedule(params, firsts[-1], int(walks.stats["tokens"] or 0), progress)
    schedule.start = position.epoch * firsts[-1] + firsts[position.shard]
    saved_at = time.monotonic()

    def save() -> None:
        nonlocal saved_at
        kernel.finish()
        save_checkpoint(checkpoint, tables, position)
        saved()
        saved_at = time.monotonic()

    while position.epoch < params.epochs:
        for shard in range(position.shard, len(names)):
            data = np.array(walks.array(names[shard]))
            walks.release(names[shard])
            check_walks(f"{walks.uri}/{names[shard]}", data, vertices)
            train_shard(kernel, data, firsts[shard], position, schedule)
            position.shard = shard + 1
            if time.monotonic() - saved_at > CHECKPOINT_SECONDS and position.shard < len(names):
                save()
        loss = position.loss / position.weight if position.weight else None
        position.losses.append(loss)
        if loss is not None:
            progress.report(position.epoch + 1, params.epochs, learned_share(loss, params.negative), epoch_loss=loss)
        position.epoch, position.shard, position.loss, position.weight = position.epoch + 1, 0, 0.0, 0.0
        save()
    return position


def learned_share(loss: float, negative: int) -> float:
    """Share of the loss of zero vectors, (1 + negative) log 2 for a pair, that training has removed; at most 1."""
    return 1 - loss / ((1 + negative) * math.log(2))


class Schedule:
    """Learning rate and report of progress, by walks done.

    Args:
        params: the stage's parameters.
        walks: walks in an epoch.
        tokens: tokens in an epoch.
        progress: receives reports.
    """

    def __init__(self, params: EmbedParams, walks: int, tokens: int, progress: Progress):
        self.params, self.progress = params, progress
        self.walks, self.total, self.tokens_per_walk = walks, walks * params.epochs, tokens / max(1, walks)
        self.start, self.begun = 0, time.monotonic()

    def rate(self, walk: int) -> float:
        """Learning rate before the given walk of all epochs."""
        return self.params.learning_rate * (1 - (1 - LAST_RATE) * walk / self.total)

    def report(self, walk: int, position: EmbeddingPosition) -> None:
        """Report progress, with the mean loss of a pair in this epoch so far."""
        speed = (walk - self.start) * self.tokens_per_walk / max(1e-9, time.monotonic() - self.begun)
        facts = {"loss": position.loss / position.weight} if position.weight else {}
        self.progress.update(walk, self.total, "walks", **facts, tokens_per_s=speed)


def train_shard(
    kernel: Kernel, data: NDArray[Any], number: int, position: EmbeddingPosition, schedule: Schedule
) -> None:
    """Train on the walks of one shard, whose first has the given number, in `kernel.threads` threads."""
    offset = position.epoch * schedule.walks + number
    guard = threading.Lock()
    done = 0

    def learn(first: int) -> None:
        nonlocal done
        last = min(len(data), first + kernel.chunk)
        rates = schedule.rate(offset + first), schedule.rate(offset + last)
        loss, weight, peak = kernel.train(data[first:last], number + first, position.epoch, *rates)
        with guard:
            position.loss += loss
            position.weight += weight
            done += last - first
            if not (np.isfinite(loss) and peak <= NORM_LIMIT**2):
                raise _diverged(schedule, offset + done)
            schedule.report(offset + done, position)

    _in_threads(kernel.threads, iter(range(0, len(data), kernel.chunk)), learn)


def _in_threads(threads: int, items: Iterator[int], work: Callable[[int], None]) -> None:
    """Process items in threads; the first error stops all of them and is raised here."""
    guard = threading.Lock()
    errors: list[BaseException] = []

    def loop() -> None:
        while not errors:
            with guard:
                item = next(items, None)
            if item is None:
                return
            try:
                work(item)
            except BaseException as error:
                errors.append(error)

    if threads == 1:
        loop()
    else:
        team = [threading.Thread(target=loop, daemon=True) for _ in range(threads)]
        for member in team:
            member.start()
        for member in team:
            member.join()
    if errors:
        raise errors[0]


def _diverged(schedule: Schedule, walk: int) -> UserError:
    params = schedule.params
    return UserError(
        f"training diverged after {walk:,} of {schedule.total:,} walks: "
        f"the norm of a vector exceeds {NORM_LIMIT:g} or is not a number",
        where="embed.learning_rate", value=params.learning_rate,
        remedy="Lower embed.learning_rate" + (" or raise embed.step_bound to 0.25" if params.step_bound < 0.25 else ""),
    )  # fmt: skip


def _length(walks: Dataset, name: str) -> int:
    length = len(walks.array(name))
    walks.release(name)
    return length
