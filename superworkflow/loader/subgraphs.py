"""Loader of batches of subgraphs, stored or sampled on demand."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from superworkflow.infra.base.errors import DatasetDamaged, UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.loader.batch import Batch, batch_of, wanted_features
from superworkflow.loader.merge import Window, joined
from superworkflow.loader.order import batch_spans, windows
from superworkflow.tasks.lib.graph.heterograph import EdgeSet, Feature, HeteroGraph, NodeSet
from superworkflow.tasks.lib.kernels.buffer_pool import Arena, Memory
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.subgraphs.blocks import SPLITS, SubgraphBlock
from superworkflow.tasks.records import shards
from superworkflow.tasks.records.features import FeatureSource, seed_sets_of
from superworkflow.tasks.sample.params import SampleParams
from superworkflow.tasks.sample.sampler import SeedRows, SpecSampler
from superworkflow.tasks.sample.seeds import find_seeds
from superworkflow.tasks.sample.spec import parse_spec

load_kernels_fast()

Names = Mapping[str, Sequence[str]]


class Origin(Protocol):
    """Origin of subgraphs."""

    def __len__(self) -> int: ...

    def window(self, numbers: NDArray[np.int64], without_positions: frozenset[int]) -> Any:
        """Window of the subgraphs of these numbers, in their order.

        Args:
            numbers: of the subgraphs.
            without_positions: numbers of the edge sets whose positions may be left out.
        """

    def take(self, window: Any, first: int, last: int) -> SubgraphBlock:
        """Subgraphs `first` to `last` - 1 of a window."""

    def seeds(self) -> NDArray[Any]:
        """See `SplitSubgraphs.seeds`."""


class Stored:
    """Subgraphs of a dataset; windows are read as needed, and cached while there is room."""

    def __init__(self, dataset: Dataset, split: str, kept_bytes: int):
        self._subgraphs = shards.SplitSubgraphs(dataset, split)
        self._kept: dict[tuple[shards.SubgraphGroup, frozenset[int]], SubgraphBlock] = {}
        self._room = kept_bytes
        self._memory = Memory()

    def __len__(self) -> int:
        return len(self._subgraphs)

    def window(self, numbers: NDArray[np.int64], without_positions: frozenset[int]) -> Window:
        """Window over the row groups that hold these subgraphs.

        Raises:
            DatasetDamaged: lists of one set differ in length.
        """
        firsts = np.array([group.first for group in self._subgraphs.groups])
        owner = np.searchsorted(firsts, numbers, side="right") - 1
        groups = np.unique(owner)
        arena = Arena(self._memory)
        blocks = [self._read(self._subgraphs.groups[group], without_positions, arena) for group in groups.tolist()]
        begins = np.concatenate([[0], np.cumsum([block.subgraphs for block in blocks])])
        places = numbers - firsts[owner] + begins[np.searchsorted(groups, owner)]
        try:
            window = Window(blocks, places, without_positions)
        except ValueError as error:
            raise DatasetDamaged(f"{error}", where=self._subgraphs.dataset.uri, value=self._subgraphs.split,
                                 remedy="Sample again") from None  # fmt: skip
        weakref.finalize(window, self._memory.give_back, arena.pieces)
        return window

    def take(self, window: Window, first: int, last: int) -> SubgraphBlock:
        return window.take(first, last)

    def _read(self, group: shards.SubgraphGroup, without_positions: frozenset[int], arena: Arena) -> SubgraphBlock:
        """A group; its lists are in the arena once the cache is full."""
        block = self._kept.get((group, without_positions))
        if block is None and not self._room:
            return self._subgraphs.read(group, without_positions, arena.array)
        if block is None:
            block = self._subgraphs.read(group, without_positions)
            lists = (*block.nodes, *block.sources, *block.targets, *block.positions)
            size = sum(values.nbytes for values in lists)
            if size <= self._room:
                self._kept[group, without_positions] = block
            self._room -= min(size, self._room)
        return block

    def seeds(self) -> NDArray[Any]:
        return np.concatenate([np.zeros(0, np.int64), *(self._subgraphs.read(g).seeds for g in self._subgraphs.groups)])


class Live:
    """Subgraphs sampled on demand."""

    def __init__(self, sampler: SpecSampler, rows: SeedRows):
        self._sampler, self._rows = sampler, rows

    def __len__(self) -> int:
        return len(self._rows.ids)

    def window(self, numbers: NDArray[np.int64], without_positions: frozenset[int]) -> SeedRows:
        """Seeds of these subgraphs."""
        return self._rows.take(numbers)

    def take(self, window: SeedRows, first: int, last: int) -> SubgraphBlock:
        return self._sampler.block(window.part(first, last))

    def seeds(self) -> NDArray[Any]:
        nodes = self._rows.nodes
        return nodes[:, 0] if nodes.shape[1] == 1 else nodes


class Subgraphs:
    """Subgraphs of one split of a dataset of stage `sample`, with the features of their graph; see also `live`.

    Args:
        graph: heterograph dataset, or its URI.
        subgraphs: dataset of stage `sample` that was made from it, or its URI.
        split: `train`, `validation` or `test`.
        features: names of the features in batches, by node set or edge set; all but strings if not given.
        edge_positions: include positions of edges in the graph's rows even for edge sets without features.
        kept_bytes: memory that caches subgraphs for later epochs; 0 for none.

    Raises:
        UserError: no such dataset, split or feature.
        DatasetDamaged: the subgraphs do not belong to the graph.
    """

    def __init__(
        self, graph: Dataset | str, subgraphs: Dataset | str, *, split: str = "train", features: Names | None = None,
        edge_positions: bool = False, kept_bytes: int = 1 << 30,
    ):  # fmt: skip
        dataset = _opened(subgraphs)
        opened = HeteroGraph.open(_opened(graph))
        check_split(split)
        source = FeatureSource(opened, seed_sets_of(dataset, opened))
        self._set(source, Stored(dataset, split, kept_bytes), features, edge_positions)
        self._made_by: Any = (
            Subgraphs,
            (opened.dataset.uri, dataset.uri),
            {"split": split, "features": features, "edge_positions": edge_positions, "kept_bytes": kept_bytes},
        )

    @classmethod
    def live(
        cls, graph: Dataset | str, spec: str | Path, *, seeds: str | Path | None = None, split: str = "train",
        params: Mapping[str, Any] | None = None, features: Names | None = None, edge_positions: bool = False,
    ) -> Subgraphs:  # fmt: skip
        """The same subgraphs as stage `sample` would store, sampled on demand.

        Args:
            graph: heterograph dataset, or its URI.
            spec: path of the sampling spec.
            seeds: path of a table of seeds; all nodes of the spec's set if not given.
            split: `train`, `validation` or `test`.
            params: of the stage, by name, such as ``{"repeats": 2}``.
            features, edge_positions: see the class.

        Raises:
            UserError: as the stage, and as the class.
        """
        check_split(split)
        opened = HeteroGraph.open(_opened(graph))
        given = SampleParams.model_validate(dict(params or {}))
        sampler = SpecSampler(opened, parse_spec(Path(spec).read_text(), str(spec)), given)
        table = find_seeds(opened, sampler.spec, given, None if seeds is None else Path(seeds), str(seeds))
        self = cls.__new__(cls)
        ends = (sampler.spec.node_set,) * (1 + sampler.spec.is_link)
        self._set(FeatureSource(opened, ends), Live(sampler, table.rows(split)), features, edge_positions)
        keywords = {"seeds": seeds, "split": split, "params": params, "features": features,
                    "edge_positions": edge_positions}  # fmt: skip
        self._made_by = (cls.live, (opened.dataset.uri, spec), keywords)
        return self

    def _set(self, source: FeatureSource, origin: Origin, features: Names | None, edge_positions: bool) -> None:
        self.source, self._origin, self._features = source, origin, features
        self._without_positions = frozenset(
            j for j, edges in enumerate(source.graph.edge_sets.values())
            if not edge_positions and not self._wanted("edges", edges)
        )  # fmt: skip
        sets: dict[str, NodeSet | EdgeSet] = {**source.graph.node_sets, **source.graph.edge_sets}
        for name, wanted in (features or {}).items():
            existing = [each.name for each in sets[name].features] if name in sets else []
            for feature in wanted if name in sets else [""]:
                if feature not in existing:
                    raise UserError(
                        f"{name} has no such feature" if name in sets else f"no set named {name}",
                        where=source.graph.dataset.uri, value=feature,
                        remedy=f"Sets: {', '.join(sets)}; features: {', '.join(existing)}",
                    )  # fmt: skip

    def __len__(self) -> int:
        """Number of subgraphs, over all ranks and workers."""
        return len(self._origin)

    def __reduce__(self) -> Any:
        return _made_again, self._made_by

    def batches(
        self, size: int, *, seed: int = 0, epoch: int = 0, shuffle: bool = True, drop_last: bool = False,
        rank: int | None = None, ranks: int | None = None, threads: int = 1,
    ) -> Iterator[Batch]:  # fmt: skip
        """This process's batches of an epoch, in order.

        Batch i of an epoch belongs to rank ``i % ranks``. Workers of a torch `DataLoader` divide a rank's batches so
        that they arrive in the same order for any number of workers. All ranks have equally many.

        Args:
            size: subgraphs of a batch; the last one may have fewer.
            seed, epoch: determine the order; equal ones give equal batches.
            shuffle: random order; otherwise that of the dataset.
            drop_last: leave out a smaller last batch.
            rank, ranks: of this process; those of torch.distributed if not given.
            threads: number of threads that prepare batches ahead.
        """
        if size < 1 or threads < 1:
            raise UserError("a batch has at least one subgraph, and one thread that makes it", value=min(size, threads))
        rank, ranks = _rank(rank, ranks)
        worker = torch.utils.data.get_worker_info()
        mine = batch_spans(
            len(self), size, rank, ranks, worker.id if worker else 0, worker.num_workers if worker else 1, drop_last
        )
        waiting: deque[Future[Batch]] = deque()
        with ThreadPoolExecutor(threads) as pool:
            try:
                for pieces in self._pieces(mine, seed, epoch, shuffle):
                    waiting.append(pool.submit(self._make, pieces))
                    if len(waiting) > threads:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for left in waiting:
                    left.cancel()

    def dataset(self, size: int, **options: Any) -> torch.utils.data.IterableDataset[Batch]:
        """The batches as a dataset for ``torch.utils.data.DataLoader(…, batch_size=None)``; options of `batches`."""
        return _Batches(self, size, options)

    def picked(self, numbers: NDArray[np.int64]) -> SubgraphBlock:
        """Some subgraphs by their numbers in the order of the dataset, without features."""
        return self._origin.take(self._origin.window(numbers, frozenset()), 0, len(numbers))

    def seeds(self) -> NDArray[Any]:
        """Numbers of all seeds in the graph, [subgraphs], or [subgraphs, 2] of links."""
        return self._origin.seeds()

    def _pieces(
        self, spans: Iterator[range], seed: int, epoch: int, shuffle: bool
    ) -> Iterator[list[tuple[Any, int, int]]]:
        """Pieces of each batch: ranges of one or more windows; the next window is read ahead."""
        ordered = windows(len(self), seed, epoch, shuffle)
        with ThreadPoolExecutor(1) as reader:

            def following() -> tuple[int, Future[Any]] | None:
                for numbers in ordered:
                    return len(numbers), reader.submit(self._origin.window, numbers, self._without_positions)
                return None

            ahead, window = following(), None
            begin = end = 0
            for span in spans:
                pieces: list[tuple[Any, int, int]] = []
                position = span.start
                while position < span.stop:
                    while position >= end:
                        assert ahead is not None
                        begin, end, window = end, end + ahead[0], ahead[1]
                        ahead = following()
                    assert window is not None
                    stop = min(span.stop, end)
                    pieces.append((window.result(), position - begin, stop - begin))
                    position = stop
                yield pieces

    def _make(self, pieces: list[tuple[Any, int, int]]) -> Batch:
        blocks = [self._origin.take(*piece) for piece in pieces]
        return batch_of(joined(blocks), self.source, self._wanted, self._without_positions)

    def _wanted(self, kind: str, items: NodeSet | EdgeSet) -> list[Feature]:
        return wanted_features(items, None if self._features is None else self._features.get(items.name, ()))


class _Batches(torch.utils.data.IterableDataset[Batch]):
    def __init__(self, subgraphs: Subgraphs, size: int, options: Mapping[str, Any]):
        self._subgraphs, self._size, self._options = subgraphs, size, dict(options)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        self._options["epoch"] = epoch

    def __iter__(self) -> Iterator[Batch]:
        return self._subgraphs.batches(self._size, **self._options)


def check_split(split: str) -> None:
    """Raise `UserError` for an unknown split."""
    if split not in SPLITS:
        raise UserError("no such split", where="split", value=split, remedy=f"Valid: {', '.join(SPLITS)}")


def _opened(dataset: Dataset | str) -> Dataset:
    return dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)


def _rank(rank: int | None, ranks: int | None) -> tuple[int, int]:
    if rank is None or ranks is None:
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        return (torch.distributed.get_rank(), torch.distributed.get_world_size()) if distributed else (0, 1)
    if not 0 <= rank < ranks:
        raise UserError("a rank is below the number of ranks", where="rank", value=rank)
    return rank, ranks


def _made_again(make: Any, given: Any, keywords: Any) -> Subgraphs:
    made = make(*given, **keywords)
    assert isinstance(made, Subgraphs)
    return made
