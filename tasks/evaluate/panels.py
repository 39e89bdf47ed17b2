"""Panels of judged embeddings: scores by share of labelled nodes, and by operator of pairs."""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.panel import Part, plot
from superworkflow.infra.storage.dataset import Dataset


def judged(datasets: Mapping[str, Dataset]) -> list[Part] | None:
    """Parts of an evaluate dataset."""
    (evaluation,) = datasets.values()
    scores = evaluation.table("scores.parquet").to_pylist()
    parts = []
    if scores:
        traces = [
            {"type": "box", "name": title, "x": [f"{100 * row['train_ratio']:g}%" for row in scores],
             "y": [row[name] for row in scores], "boxpoints": "all", "jitter": 0.3, "pointpos": 0,
             "marker": {"size": 4}}
            for name, title in (("micro_f1", "Micro-F1"), ("macro_f1", "Macro-F1"))
        ]  # fmt: skip
        parts.append(plot(traces, title="Node classification", boxmode="group", showlegend=True,
                          note="A point for each random split, by the share of labelled nodes that are learned from.",
                          xaxis={"type": "category"}, yaxis={"nticks": 6}))  # fmt: skip
    pairs = {name.partition("@")[2]: value for name, value in evaluation.metrics.items() if name.startswith("link_auc")}
    if pairs:
        bars = {"type": "bar", "x": list(pairs), "y": list(pairs.values()),
                "hovertemplate": "%{x}: AUC %{y:.4f}<extra></extra>"}  # fmt: skip
        half = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 0.5, "y1": 0.5,
                "line": {"dash": "dot", "width": 1}}  # fmt: skip
        parts.append(plot([bars], title="Link prediction, by operator", shapes=[half], note="The line is chance.",
                          xaxis={"type": "category"}, yaxis={"range": [0, 1], "title": {"text": "AUC"}}))  # fmt: skip
    return parts or None
