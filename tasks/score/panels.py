"""Panels of judged predictions: confusion matrix, figures of each class, calibration, the most confident mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from superworkflow.infra.contract.panel import Part, packed, plot, table
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.score.numbers import keys_of

MOST_CLASSES = 40
"""Classes of a matrix that is drawn."""
MISTAKES = 50


def classes(datasets: Mapping[str, Dataset]) -> list[Part] | None:
    """Parts of a score dataset, the first, and of the predictions that it judged, those of the next that has some."""
    scores, *others = datasets.values()
    parts: list[Part] = []
    split = _last_split(scores)
    if split is None:
        return _numbers(scores)
    if "confusion.parquet" in scores:
        parts += _confusion(_of_split(scores, "confusion.parquet", split), split)
    rows = _of_split(scores, "classes.parquet", split)
    columns = ["class", "precision", "recall", "f1", "support", "predicted", "roc_auc"]
    rows = rows.sort_by([("support", "descending")])
    values = [[_short(value) for value in row.values()] for row in rows.select(columns).to_pylist()]
    parts.append(table([name.replace("_", " ") for name in columns], values, title=f"Classes, {split}"))
    if "calibration.parquet" in scores:
        parts.append(_calibration(_of_split(scores, "calibration.parquet", split), split))
    judged = next((each for each in others if "predictions.parquet" in each), None)
    if judged is not None and (found := _mistakes(judged, split)) is not None:
        parts.append(found)
    return parts


def _last_split(scores: Dataset) -> str | None:
    """Test if it was judged, else validation; None where numbers were."""
    if "classes.parquet" not in scores:
        return None
    splits = set(scores.table("classes.parquet", ["split"])["split"].to_pylist())
    return "test" if "test" in splits else next(iter(splits), None)


def _of_split(scores: Dataset, name: str, split: str) -> pa.Table:
    found = scores.table(name)
    return found.filter(pc.equal(found["split"], split))


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def _confusion(rows: pa.Table, split: str) -> list[Part]:
    """Share of each class that was taken for each class; of many classes the most frequent ones."""
    totals = rows.group_by("label").aggregate([("nodes", "sum")]).sort_by([("nodes_sum", "descending")])
    names = totals["label"].to_pylist()
    found = [*names, *sorted(set(rows["predicted"].to_pylist()) - set(names))][:MOST_CLASSES]
    place = {name: number for number, name in enumerate(found)}
    counts = np.zeros((len(found), len(found)), np.int64)
    for row in rows.to_pylist():
        if row["label"] in place and row["predicted"] in place:
            counts[place[row["label"]], place[row["predicted"]]] = row["nodes"]
    shares = counts / np.maximum(counts.sum(axis=1), 1)[:, None]
    trace: dict[str, Any] = {
        "type": "heatmap", "x": found, "y": found, "z": [[round(float(v), 4) for v in row] for row in shares],
        "text": counts.tolist(), "colorscale": [[0, "rgba(76,120,221,0.06)"], [1, "#4c78dd"]],
        "zmin": 0, "zmax": 1, "xgap": 1, "ygap": 1,
        "colorbar": {"tickformat": ".0%", "thickness": 10},
        "hovertemplate": "%{y} taken for %{x}: %{text} (%{z:.1%})<extra></extra>",
    }  # fmt: skip
    if len(found) <= 12:
        trace |= {"texttemplate": "%{text}"}
    note = "Rows are true classes, columns predictions; colours are shares of a row."
    if len(names) > len(found):
        note += f" The {len(found)} most frequent of {len(names)} classes."
    return [
        plot([trace], title=f"Confusion matrix, {split}", note=note, height=120 + max(180, 22 * len(found)),
             xaxis={"type": "category", "title": {"text": "predicted"}, "showgrid": False},
             yaxis={"type": "category", "autorange": "reversed", "title": {"text": "true"}, "showgrid": False})
    ]  # fmt: skip


def _calibration(rows: pa.Table, split: str) -> Part:
    """Share of right predictions by their probability."""
    probability, accuracy = (rows[name].to_pylist() for name in ("probability", "accuracy"))
    traces = [
        {"type": "scatter", "mode": "lines", "name": "ideal", "x": [0, 1], "y": [0, 1], "hoverinfo": "skip",
         "line": {"dash": "dot", "width": 1, "color": "#9aa4b2"}},
        {"type": "scatter", "mode": "lines+markers", "name": "predictions", "x": probability, "y": accuracy,
         "text": [f"{count:,} nodes" for count in rows["nodes"].to_pylist()],
         "hovertemplate": "probability %{x:.2f}: %{y:.1%} right, %{text}<extra></extra>"},
    ]  # fmt: skip
    return plot(traces, title=f"Calibration, {split}", xaxis={"title": {"text": "probability"}, "range": [0, 1]},
                yaxis={"title": {"text": "share right"}, "range": [0, 1.02]})  # fmt: skip


def _mistakes(predictions: Dataset, split: str) -> Part | None:
    """Wrong predictions of a split with the highest probabilities."""
    with predictions.parquet("predictions.parquet") as file:
        names = set(file.schema_arrow.names)
        if not {"predicted", "probability", "label"} <= names:
            return None
        keys = keys_of(file.schema_arrow.names)
        rows = file.read([*keys, "label", "predicted", "probability", "split"])
    if pa.types.is_list(rows["predicted"].type) or pa.types.is_large_list(rows["predicted"].type):
        return None
    wrong = pc.and_(pc.equal(rows["split"], split), pc.not_equal(rows["label"], rows["predicted"]))
    rows = rows.filter(wrong).sort_by([("probability", "descending")])
    shown = [[_short(value) for value in row.values()] for row in rows.slice(0, MISTAKES).drop(["split"]).to_pylist()]
    return table([*keys, "label", "predicted", "probability"], shown, title=f"Most confident mistakes, {split}",
                 note=f"{len(rows):,} mistakes in all.")  # fmt: skip


def _numbers(scores: Dataset) -> list[Part] | None:
    """The largest errors of predicted numbers."""
    if "errors.parquet" not in scores:
        return None
    rows = scores.table("errors.parquet")
    points = {
        "type": "scatter", "mode": "markers", "x": packed(rows["label"].to_numpy()),
        "y": packed(rows["predicted"].to_numpy()), "hovertemplate": "true %{x}, predicted %{y}<extra></extra>",
    }  # fmt: skip
    shown = [[_short(value) for value in row.values()] for row in rows.slice(0, MISTAKES).to_pylist()]
    return [
        plot([points], title="Largest errors", xaxis={"title": {"text": "true"}},
             yaxis={"title": {"text": "predicted"}}),
        table(rows.column_names, shown),
    ]  # fmt: skip
