"""Panels of judged links: scores of links and other pairs, hits among the first k, figures of relations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow.compute as pc

from superworkflow.infra.contract.panel import Part, packed, plot, table
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.metrics.ranks import HITS_FILE
from superworkflow.tasks.score_links.triples import TABLE

_BINS = 50


def links(datasets: Mapping[str, Dataset]) -> list[Part] | None:
    """Parts of a score_links dataset, the first, and of the predictions that it judged, corrected ones first."""
    scores, *others = datasets.values()
    parts: list[Part] = []
    for dataset in others:
        if not parts and "predictions.parquet" in dataset:
            parts += _histograms(dataset)
    if HITS_FILE in scores:
        parts.append(_hits(scores.json(HITS_FILE)))
    if TABLE in scores:
        rows = scores.table(TABLE)
        values = [[round(each, 4) if isinstance(each, float) else each for each in row.values()]
                  for row in rows.to_pylist()]  # fmt: skip
        parts.append(table(rows.column_names, values, title="Relations"))
    return parts or None


def _histograms(predictions: Dataset) -> list[Part]:
    """Distribution of the scores of each split's links, and of its pairs without one."""
    with predictions.parquet("predictions.parquet") as file:
        if not {"linked", "split", "score"} <= set(file.schema_arrow.names):
            return []
        rows = file.read(["linked", "split", "score"])
    parts = []
    for split in ("validation", "test"):
        own = rows.filter(pc.equal(rows["split"], split))
        if not len(own):
            continue
        scores, linked = own["score"].to_numpy(), own["linked"].to_numpy(zero_copy_only=False).astype(bool)
        bins = np.histogram_bin_edges(scores, _BINS)
        traces: list[dict[str, Any]] = []
        for name, chosen in (("links", linked), ("pairs without a link", ~linked)):
            counts = np.histogram(scores[chosen], bins)[0] / max(1, int(chosen.sum()))
            traces.append({"type": "bar", "name": name, "x": packed((bins[:-1] + bins[1:]) / 2), "y": packed(counts),
                           "width": float(bins[1] - bins[0]), "opacity": 0.65,
                           "hovertemplate": "score %{x:.3g}: %{y:.1%} of the " + name + "<extra></extra>"})  # fmt: skip
        parts.append(plot(traces, title=f"Scores, {split}", barmode="overlay", showlegend=True, bargap=0,
                          xaxis={"title": {"text": "score"}}, yaxis={"tickformat": ".0%"},
                          note=f"{int(linked.sum()):,} links and {int((~linked).sum()):,} other pairs."))  # fmt: skip
    return parts


def _hits(found: Mapping[str, Mapping[str, float]]) -> Part:
    """Share of links among the first k, by k; the file has its keys in the order of texts."""
    traces = [
        {"type": "scatter", "mode": "lines+markers", "name": split, "x": sorted(map(int, shares)),
         "y": [shares[str(k)] for k in sorted(map(int, shares))], "hovertemplate": "hits@%{x}: %{y:.1%}<extra></extra>"}
        for split, shares in found.items()
    ]  # fmt: skip
    return plot(traces, title="Hits at k", note="Share of links that rank among the first k.", showlegend=True,
                xaxis={"type": "log", "title": {"text": "k"}, "dtick": 1},
                yaxis={"tickformat": ".0%", "rangemode": "tozero"})  # fmt: skip
