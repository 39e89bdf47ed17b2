"""The chosen regression for people: its card and its picture."""

from pathlib import Path

from matplotlib.figure import Figure

from superworkflow.infra.base.plot_style import COLOURS, DPI, GREY, layout, save
from superworkflow.infra.contract.outcomes import ModelCard
from superworkflow.infra.storage.dataset import Dataset


def card(chosen: Dataset) -> ModelCard:
    """The card of a `choose` dataset."""
    facts = chosen.json("columns.json")
    return ModelCard(
        kind="regression",
        columns=tuple({"name": name, "type": "double", "required": False} for name in facts["names"]),
        example=(dict(zip(facts["names"], facts["mean"], strict=True)),),
        options={"digits": 2},
        facts={"degree": facts["degree"]},
        metadata={"rmse": chosen.metrics["rmse"]},
    )


def draw(chosen: Dataset, path: Path) -> None:
    """Predicted against measured, each patient by the fold that did not see them."""
    figure = Figure(figsize=(6, 6), dpi=DPI, layout=layout())
    axes = figure.add_subplot()
    measured, predicted = chosen.array("target.npy"), chosen.array("predicted.npy")
    axes.plot([measured.min(), measured.max()], [measured.min(), measured.max()], color=GREY)
    axes.scatter(measured, predicted, s=12, color=COLOURS[0])
    axes.set_xlabel("measured")
    axes.set_ylabel("predicted")
    save(figure, path)
