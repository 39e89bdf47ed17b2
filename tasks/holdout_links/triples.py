"""Triples of all relations that are held out: drawn ones of each relation, or those that a source gives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.holdout_links import HoldoutLinksParams
from superworkflow.tasks.holdout_links.given_links import read_given_triples
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, log_warnings, warning_stats
from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.sampler.links import HELD_OUT, Places
from superworkflow.tasks.lib.gnn.sampler.negative_sampling import draw_non_links
from superworkflow.tasks.lib.gnn.sampler.triples import HeldOutTriples, Triples, is_among, triples_of
from superworkflow.tasks.lib.graph.heterograph import EdgeSet, HeteroGraph
from superworkflow.tasks.lib.graph.hidden_edges import write_without
from superworkflow.tasks.lib.kernels.arrays import read_only

_SHOWN = 5


def hold_out(job: StageRun[HoldoutLinksParams], graph: HeteroGraph, relations: list[EdgeSet]) -> Output:
    """Hide triples of all relations; see `tasks.holdout_links`.

    Raises:
        UserError: too few triples, given ones are wrong, or a relation has too few pairs without one.
    """
    names = tuple(each.name for each in relations)
    triples = triples_of(graph, names)
    if job.params.by == "time":
        raise UserError("the latest links are held out of one relation alone", where="holdout_links.by", value="time",
                        remedy="Name one in holdout_links.edges, or set holdout_links.by=hash")  # fmt: skip
    warnings: list[InputWarning] = []
    if "links" in job.sources:
        parts = read_given_triples(job, graph, relations, triples)
    else:
        parts, warnings = _drawn(job.params, graph, names, triples)
    hidden = np.concatenate([parts[split] for split in HELD_OUT])
    others = np.concatenate([
        _others(graph, each, number, int((hidden[:, 1] == number).sum()), job.params.seed, hidden)
        for number, each in enumerate(relations)
    ])  # fmt: skip
    order = np.argsort(np.argsort(hidden[:, 1], kind="stable"), kind="stable")  # each triple's relation in its place
    cut = len(parts["validation"])
    held_out = HeldOutTriples(names, parts, dict(zip(HELD_OUT, np.split(others[order], [cut]), strict=True)))
    sizes = [len(parts[split]) for split in HELD_OUT]
    job.progress.log(f"{len(triples)} triples of {len(names)} relations; {sizes[0]} to validate on and {sizes[1]} to "
                     "test are hidden")  # fmt: skip
    log_warnings(job.progress, warnings)
    gone: dict[int, NDArray[np.int64]] = {}
    for number, each in enumerate(relations):
        gone |= Places(graph, each, directed=True).of(hidden[hidden[:, 1] == number][:, ::2])
    stats = write_without(job.output, graph, gone)
    held_out.write(job.output)
    return Output(rows=len(hidden), stats={
        **graph.dataset.stats, **stats, "links": len(triples),
        "relations": len(names), "validation_links": sizes[0], "test_links": sizes[1],
        "bytes": job.output.bytes_written, **warning_stats(warnings),
    })  # fmt: skip


def _drawn(
    params: HoldoutLinksParams, graph: HeteroGraph, names: tuple[str, ...], triples: Triples
) -> tuple[dict[str, Triples], list[InputWarning]]:
    """Draw the same share of each relation's triples; one with too few for a test triple is trained on as a whole."""
    keys = random_streams.words(np.arange(len(triples)), params.seed, random_streams.HIDDEN)
    order = np.argsort(keys, kind="stable")
    counts = np.bincount(triples[:, 1], minlength=len(names))
    parts: dict[str, list[NDArray[np.int64]]] = {split: [] for split in HELD_OUT}
    for number, count in enumerate(counts):
        own = order[triples[order, 1] == number]
        first, second = int(params.validation_share * count), int(params.test_share * count)
        parts["validation"].append(own[:first])
        parts["test"].append(own[first : first + second])
    chosen = {split: np.concatenate(each) for split, each in parts.items()}
    for split, share in (("test", params.test_share), ("validation", params.validation_share)):
        if share and not len(chosen[split]):
            raise UserError(
                f"no relation has triples enough to hide one for {split}", where=graph.dataset.uri,
                value=f"{int(counts.max())} of the largest", remedy=f"Set holdout_links.{split}_share higher",
            )  # fmt: skip
    small = [names[number] for number in np.flatnonzero((params.test_share * counts).astype(np.int64) == 0)]
    found = []
    if small:
        shown = ", ".join(small[:_SHOWN]) + (" …" if len(small) > _SHOWN else "")
        found.append(InputWarning(
            "relations have too few triples to test one, and are learned from, but not tested", graph.dataset.uri,
            f"{len(small)} of {len(names)}, below {1 / params.test_share:.0f} triples: {shown}",
            "Set holdout_links.test_share higher, or give --links FILE with triples to test",
        ))  # fmt: skip
    return {split: triples[each[np.argsort(keys[each], kind="stable")]] for split, each in chosen.items()}, found


def _others(
    graph: HeteroGraph, edges: EdgeSet, number: int, count: int, seed: int, hidden: Triples
) -> Triples:  # fmt: skip
    """Triples of a relation that neither the graph nor the held-out ones have."""
    rows, targets = graph.rows(edges.name), graph.node_sets[edges.target].count
    state = np.uint64(random_streams.state(seed, random_streams.NON_LINK, number))
    own = hidden[hidden[:, 1] == number]
    pairs = np.empty((count + len(own), 2), np.int64)  # given ones may not be in the graph
    found = draw_non_links(read_only(rows.indptr), read_only(rows.indices), False, targets, state, pairs)
    made = np.stack([pairs[:found, 0], np.full(found, number), pairs[:found, 1]], 1)
    made = made[~is_among(made, own)][:count]
    if len(made) < count:
        raise UserError(
            f"too few pairs of nodes without this relation: {count} are needed",
            where=f"{graph.dataset.uri}, {edges.name}", value=len(made),
            remedy="Leave the relation out, or set holdout_links.test_share lower",
        )  # fmt: skip
    return made
