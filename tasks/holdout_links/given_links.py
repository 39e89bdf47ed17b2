"""Links to validate and test that a user gives, perhaps with pairs that are no links."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import StageRun
from superworkflow.infra.storage.part_files import part_files, part_uri
from superworkflow.infra.storage.text_file import open_unpacked
from superworkflow.tasks.holdout_links import HoldoutLinksParams
from superworkflow.tasks.lib.formats.text_header import separator_of
from superworkflow.tasks.lib.gnn.objective.splits import BY_NAME
from superworkflow.tasks.lib.gnn.sampler.links import HELD_OUT, Pairs, packed_pairs
from superworkflow.tasks.lib.gnn.sampler.triples import Triples, is_among
from superworkflow.tasks.lib.graph.heterograph import EdgeSet, HeteroGraph
from superworkflow.tasks.lib.graph.relation_names import safe_names

COLUMNS, LABEL, RELATION = ("source", "target", "split"), "label", "relation"
_FORM = "Give a header source,target,split or source,target,split,label, where label is 1 for a link and 0 for none"
_SHOWN = 3


@dataclass(frozen=True)
class GivenLinks:
    """Links and other pairs of a file.

    Args:
        links: by split of `HELD_OUT`, sources and targets as the file has them, int64 [links, 2].
        candidates: by split, pairs that are no links; no entry for a split without them.
        trained: links of the split train, int64 [links, 2].
    """

    links: Mapping[str, Pairs]
    candidates: Mapping[str, Pairs]
    trained: Pairs


def read_given(job: StageRun[HoldoutLinksParams], graph: HeteroGraph, edges: EdgeSet) -> GivenLinks:
    """Read the source `links`.

    Raises:
        UserError: a row is no link or pair of nodes of the graph, occurs in two splits, or nothing is to be tested.
    """
    source = job.sources["links"]
    table = pa.concat_tables([
        _table(str(source.local(job.scratch, name)), part_uri(source, name)) for name in part_files(source)
    ])  # fmt: skip
    pairs = np.stack([
        _nodes(table[column], graph, node_set, source.uri)
        for column, node_set in zip(COLUMNS[:2], (edges.source, edges.target), strict=True)
    ], 1)  # fmt: skip
    splits = _splits(table["split"], source.uri)
    linked = _linked(table[LABEL], source.uri) if LABEL in table.column_names else np.ones(len(pairs), np.bool_)
    one_set = edges.source == edges.target
    loops = np.flatnonzero(pairs[:, 0] == pairs[:, 1]) if one_set else np.empty(0, np.int64)
    if len(loops):
        raise _fault("a node is linked with itself", source.uri, loops, table["source"], "Leave such rows out")
    if (unused := np.flatnonzero((splits == "train") & ~linked)).size:
        raise _fault(
            "pairs that are no links are for validation and test", source.uri, unused, table["split"],
            "Leave such rows of the split train out: train draws pairs by itself (train.negatives)",
        )  # fmt: skip
    _check_once(pairs, splits, linked, one_set, table, source.uri)
    links = {split: pairs[linked & (splits == split)] for split in HELD_OUT}
    if not len(links["test"]):
        raise UserError("there are no links to test", where=source.uri, value=f"{len(pairs)} rows",
                        remedy="Give rows with the split test")  # fmt: skip
    others = {split: pairs[~linked & (splits == split)] for split in HELD_OUT}
    if lone := next((split for split in HELD_OUT if len(others[split]) and not len(links[split])), ""):
        raise UserError(f"the split {lone} has pairs that are no links, and no links", where=source.uri,
                        value=len(others[lone]), remedy=f"Give links of the split {lone}")  # fmt: skip
    return GivenLinks(links, {split: each for split, each in others.items() if len(each)},
                      pairs[linked & (splits == "train")])  # fmt: skip


def read_given_triples(
    job: StageRun[HoldoutLinksParams], graph: HeteroGraph, relations: Sequence[EdgeSet], triples: Triples
) -> dict[str, Triples]:  # fmt: skip
    """Read the source `links` with a column `relation`: by split of `HELD_OUT`, triples, int64 [n, 3].

    Args:
        job: the stage's argument.
        graph: the graph.
        relations: edge sets of the relations.
        triples: those of the graph.

    Raises:
        UserError: a row is no triple of nodes and a relation of the graph, occurs in two splits or has a label, nothing
            is to be tested, or nothing is left to train on.
    """
    source = job.sources["links"]
    table = pa.concat_tables([
        _table(str(source.local(job.scratch, name)), part_uri(source, name), (*COLUMNS, RELATION))
        for name in part_files(source)
    ])  # fmt: skip
    if LABEL in table.column_names:
        raise UserError("triples of all relations are compared with all others, not with given ones", where=source.uri,
                        value=LABEL, remedy=f"Leave the column {LABEL} and its rows of 0 out")  # fmt: skip
    heads, tails = (
        _nodes(table[column], graph, node_set, source.uri)
        for column, node_set in zip(COLUMNS[:2], (relations[0].source, relations[0].target), strict=True)
    )
    names = safe_names(pc.unique(table[RELATION]).drop_null().to_pylist())
    numbers = {name: number for number, name in enumerate(each.name for each in relations)}
    coded = table[RELATION].combine_chunks().dictionary_encode()
    codes = [
        numbers.get(name, -1 if f"{names[name]}_2" in numbers else numbers.get(names[name], -1))  # of two, which one?
        for name in coded.dictionary.to_pylist()
    ]
    kinds: NDArray[np.int64] = np.array([*codes, -1], np.int64)[coded.indices.fill_null(len(codes)).to_numpy()]
    if (strange := np.flatnonzero(kinds < 0)).size:
        raise _fault("there are triples of relations that are not in the graph", source.uri, strange, table[RELATION],
                     f"Name relations as the graph does: {', '.join(list(numbers)[:_SHOWN])}")  # fmt: skip
    given, splits = np.stack([heads, kinds, tails], 1), _splits(table["split"], source.uri)
    distinct, firsts, owners = np.unique(given, axis=0, return_index=True, return_inverse=True)
    owners = owners.reshape(-1)
    if (twice := np.flatnonzero(splits != splits[firsts][owners])).size:
        raise _fault("a triple is in two splits", source.uri, twice, table["source"], "Give each triple one split")
    found = {split: distinct[splits[firsts] == split] for split in HELD_OUT}
    if not len(found["test"]):
        raise UserError("there are no triples to test", where=source.uri, value=f"{len(given)} rows",
                        remedy="Give rows with the split test")  # fmt: skip
    hidden = np.concatenate([*found.values()])
    if len(triples) - is_among(triples, hidden).sum() < 2:
        raise UserError("no triple is left to train on", where=source.uri, value=f"{len(hidden)} of {len(triples)}",
                        remedy="Give an edge list with triples that are neither validated on nor tested")  # fmt: skip
    if absent := int((~is_among(distinct[splits[firsts] == "train"], triples)).sum()):
        raise UserError("triples of the split train are not in the graph", where=source.uri, value=f"{absent} triples",
                        remedy="Give an edge list with all triples to train on")  # fmt: skip
    return found


def _table(path: str, where: str, wanted: tuple[str, ...] = COLUMNS) -> pa.Table:
    """Columns of one file: Parquet, or CSV or TSV with a header, perhaps gzipped."""
    with open(path, "rb") as stream:
        begin = stream.read(4)
    try:
        if begin == b"PAR1":
            table = pq.read_table(path)
        else:
            with open_unpacked(Path(path), where) as text:
                separator = separator_of(text.readline().decode("utf-8-sig", "replace"), where)
            with open_unpacked(Path(path), where) as text:
                table = pa_csv.read_csv(
                    text, parse_options=pa_csv.ParseOptions(delimiter=separator),
                    convert_options=pa_csv.ConvertOptions(column_types=dict.fromkeys((*wanted, LABEL), pa.string())),
                )  # fmt: skip
    except (pa.ArrowInvalid, csv.Error) as error:
        raise UserError(f"no table of links: {str(error).splitlines()[0]}", where=where, remedy=_FORM) from None
    lacking = [name for name in wanted if name not in table.column_names]
    if lacking:
        raise UserError("the table of links has other columns", where=where,
                        value=", ".join(table.column_names)[:200],
                        remedy=_FORM if RELATION not in wanted else f"Give a header {','.join(wanted)}")  # fmt: skip
    names = [name for name in (*wanted, LABEL) if name in table.column_names]
    return pa.table({name: table[name].cast(pa.string()) for name in names})


def _nodes(names: pa.ChunkedArray, graph: HeteroGraph, node_set: str, where: str) -> NDArray[np.int64]:
    ids = graph.ids(node_set).combine_chunks().cast(pa.string())
    found = pc.index_in(names, value_set=ids)
    if found.null_count:
        strangers = np.flatnonzero(found.is_null().to_numpy())
        remedy = f"Name nodes as the graph does, which has {ids[0].as_py()!r}, or leave such rows out"
        raise _fault("there are links of nodes that are not in the graph", where, strangers, names, remedy)
    numbers: NDArray[np.int64] = found.to_numpy().astype(np.int64)
    return numbers


def _splits(texts: pa.ChunkedArray, where: str) -> NDArray[Any]:
    coded = texts.combine_chunks().dictionary_encode()
    names = [BY_NAME.get((text or "").lower(), "") for text in coded.dictionary.to_pylist()]
    splits: NDArray[Any] = np.array([*names, ""], object)[coded.indices.fill_null(len(names)).to_numpy()]
    if (faulty := np.flatnonzero(splits == "")).size:
        raise _fault("no such split", where, faulty, texts, "Valid: train, validation, test")
    return splits


def _linked(texts: pa.ChunkedArray, where: str) -> NDArray[np.bool_]:
    values = texts.combine_chunks()
    is_link, is_none = (pc.is_in(values, value_set=pa.array(each)) for each in (["1", "1.0"], ["0", "0.0"]))
    if (faulty := np.flatnonzero(~(pc.or_(is_link, is_none).to_numpy(zero_copy_only=False)))).size:
        raise _fault("a label of a link is neither 1 nor 0", where, faulty, texts, _FORM)
    found: NDArray[np.bool_] = is_link.to_numpy(zero_copy_only=False)
    return found


def _check_once(
    pairs: Pairs, splits: NDArray[Any], linked: NDArray[np.bool_], one_set: bool, table: pa.Table, where: str
) -> None:  # fmt: skip
    """Refuse a link that occurs in two splits, or is given as none too."""
    keys = packed_pairs(pairs, one_set)
    order = np.argsort(keys[linked], kind="stable")
    sorted_keys, sorted_splits, rows = keys[linked][order], splits[linked][order], np.flatnonzero(linked)[order]
    twice = np.flatnonzero((sorted_keys[1:] == sorted_keys[:-1]) & (sorted_splits[1:] != sorted_splits[:-1]))
    if len(twice):
        raise _fault("a link is in two splits", where, rows[twice + 1], table["source"], "Give each link one split")
    both = np.flatnonzero(~linked & np.isin(keys, sorted_keys))
    if len(both):
        raise _fault("a pair is given as a link and as none", where, both, table["source"], "Give each pair one label")


def _fault(what: str, where: str, rows: NDArray[np.int64], values: pa.ChunkedArray, remedy: str) -> UserError:
    shown = ", ".join(f"{values[int(row)].as_py()!r} in row {row + 1}" for row in rows[:_SHOWN])
    return UserError(f"{what}: {shown}", where=where, value=f"{len(rows)} rows", remedy=remedy)
