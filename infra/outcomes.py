"""What a superworkflow says of its outcomes: metrics by which runs are judged, models to register, pictures to draw.

    outcomes=(
        Metric("fit", "rmse", "minimize", headline=True, uncertainty="rmse_std"),
        Model("fit", code="my.package.serving", card="my.package.model:card", name="price-model"),
        Picture("fit", "my.package.picture:draw", "residuals"),
    )

All of it is checked when the diagram is built, before any stage starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from superworkflow.infra.errors import UserError
from superworkflow.infra.params import nearest

if TYPE_CHECKING:
    from superworkflow.infra.diagram import Diagram, Node
    from superworkflow.infra.storage.dataset import Dataset

Direction = Literal["maximize", "minimize"]
DIRECTIONS = ("maximize", "minimize")

METRICS_TAG = "superworkflow.metrics"
"""Tag of a recorded run: its metrics as they were declared."""


@dataclass(frozen=True)
class Metric:
    """A figure of a node by which runs are judged.

    Stages report figures as stats under `metrics.`, some of them at several settings: `f1@0.1`, `f1@0.5`. Of a run they
    are kept as `node.name`, so that two nodes of one stage each keep theirs.

    Args:
        node: that reports it.
        name: as its stage declares it, which stands for the figure at every setting; or at one, such as `auc@cosine`.
        direction: which values are better.
        headline: shown in lists of runs. The first headline for which the sources suffice is what sweeps improve by
            default.
        uncertainty: name of the figure that is this one's standard deviation, shown beside it.
        source: source without which it is not computed.
        options: values of the superworkflow's options with which a trial computes no more than this figure needs.
        optional: whether diagrams may do without the node.
    """

    node: str
    name: str
    direction: Direction = "maximize"
    headline: bool = False
    uncertainty: str = ""
    source: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    optional: bool = False

    @property
    def full_name(self) -> str:
        """`node.name`, as it is recorded."""
        return f"{self.node}.{self.name}"

    def covers(self, full_name: str) -> bool:
        """Whether it stands for this recorded figure, at whatever setting."""
        return full_name == self.full_name or full_name.partition("@")[0] == self.full_name

    def uncertainty_of(self, full_name: str) -> str:
        """Name under which the uncertainty of such a figure is recorded; empty when none is."""
        if not self.uncertainty or "@" in self.uncertainty:
            return self.uncertainty and f"{self.node}.{self.uncertainty}"
        return f"{self.node}.{self.uncertainty}{full_name[len(full_name.partition('@')[0]) :]}"


@dataclass(frozen=True)
class Model:
    """A dataset that is registered as a model, with the code that serves it.

    Args:
        node: whose dataset it is.
        code: import path of the module that serves it. Its file is kept with the model and runs where this project is
            not installed: `load(folder)` is given the dataset's files and returns an object whose
            `predict(table, options)` answers a pandas table with another; ValueError refuses a request.
        card: import string of `card(dataset)`, which returns a `ModelCard`.
        name: to register it under where nothing else says one: neither a deployment nor `run --register`.
        title: under which a run's summary shows its URI.
        optional: whether diagrams may do without the node.
        rescore: how to score an earlier version on a later run's data; without it the two are compared by
            the figures that their own runs recorded.
        warm_start: optional sources that take a dataset of the champion where a run starts from it (`--warm-start`):
            name of the source to name of the node that made the dataset.
    """

    node: str
    code: str
    card: str
    name: str
    title: str = "model"
    optional: bool = False
    rescore: Rescoring | None = None
    warm_start: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Rescoring:
    """How an earlier model is scored again, by the evaluation of a later run.

        def rescore(flow: Diagram, nodes: Mapping[str, Node], model: Mapping[str, Dataset]) -> Node | None:
            return flow.stage(judge.STAGE, name="champion-judge", data=nodes["test"], weights=model["fit"])

    Args:
        node: of the run, whose figures those of the added node are compared with.
        datasets: names of nodes; the datasets that they made in the earlier run are found again in the store.
        diagram: adds a stage to the run's diagram. It is given the diagram, its nodes, and the earlier model's
            datasets, both by the names of their nodes; some may be missing, where the earlier run had no such node. It
            returns the node; or two, where the run's own model has to be scored anew as well, such as on fewer pairs:
            the earlier model's and the own; or None where there is nothing to score by.
    """

    node: str
    datasets: tuple[str, ...]
    diagram: Callable[[Diagram, Mapping[str, Node], Mapping[str, Dataset]], Node | tuple[Node, Node] | None]


@dataclass(frozen=True)
class Drift:
    """How a run's data and model are compared with earlier ones.

        def drift(flow: Diagram, nodes: Mapping[str, Node], before: Mapping[str, Dataset]) -> Node | None:
            return flow.stage(shift.STAGE, table=nodes["clean"], earlier=before["clean"])

        Superworkflow(…, drift=Drift(("clean",), drift))

    What they are compared with is the champion's; where no models are registered, the last finished run of the
    deployment. The figures are those that the stages report under `drift.` (`Stage.drift`).

    Args:
        datasets: names of nodes; the datasets that they made in the earlier run are found again in the store.
        diagram: adds a stage to the run's diagram, as that of `Rescoring` does; None where there is nothing to compare.
    """

    datasets: tuple[str, ...]
    diagram: Callable[[Diagram, Mapping[str, Node], Mapping[str, Dataset]], Node | None]


@dataclass(frozen=True)
class ModelCard:
    """What a model is, as its registry and its users read it.

    Args:
        kind: such as `regression`.
        columns: of a request, in MLflow's form: `{"name": "node", "type": "string", "required": False}`.
        options: of a request, with their defaults.
        example: rows of a request.
        example_options: options of that request.
        facts: shown and searched beside the model.
        metadata: kept in it.
        requirements: packages that its code imports.
    """

    kind: str
    columns: Sequence[Mapping[str, Any]]
    example: Sequence[Mapping[str, Any]]
    options: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    example_options: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    facts: Mapping[str, int | float | str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    requirements: tuple[str, ...] = ("numpy", "pandas")


@dataclass(frozen=True)
class Picture:
    """A picture of a dataset, attached to the run's record.

    Args:
        node: whose dataset is drawn.
        function: import string of `draw(dataset, path)`, which writes a PNG, or nothing where there is none to draw.
        name: of the file, without its ending.
        optional: whether diagrams may do without the node.
    """

    node: str
    function: str
    name: str
    optional: bool = False


Outcome = Metric | Model | Picture


@dataclass(frozen=True)
class Figure:
    """One figure for people: its name, its value, and the standard deviation where one was reported."""

    name: str
    value: float
    spread: float | None = None

    def __str__(self) -> str:
        return f"{self.value:.4f}" + (f" ± {self.spread:.4f}" if self.spread is not None else "")


def figures(values: Mapping[str, float], declared: Sequence[Metric]) -> list[Figure]:
    """Recorded figures in their order, each uncertainty beside its figure rather than by itself."""
    spreads = _spreads(values, declared)
    shown = [name for name in values if name not in spreads.values()]
    return [Figure(name, values[name], values[spreads[name]] if name in spreads else None) for name in shown]


def uncertainties(values: Mapping[str, float], declared: Sequence[Metric]) -> list[str]:
    """Names of those recorded figures that are the uncertainty of another."""
    return list(_spreads(values, declared).values())


def _spreads(values: Mapping[str, float], declared: Sequence[Metric]) -> dict[str, str]:
    """Name of the uncertainty by the name of its figure."""
    return {
        name: spread
        for name in values
        for metric in declared
        if metric.covers(name) and (spread := metric.uncertainty_of(name)) in values
    }


def headlines(values: Mapping[str, float], declared: Sequence[Metric]) -> list[Figure]:
    """The headlines among recorded figures, in the order in which they are declared."""
    names = [find_metric(metric.full_name, values) for metric in declared if metric.headline]
    return [Figure(name, values[name]) for name in names if name is not None]


def drift_texts(drift: Mapping[str, float]) -> list[tuple[str, str]]:
    """Figures of drift for people: each name, and its value as a count or to four digits."""
    return [(name, f"{value:,.0f}" if value == round(value, 0) else f"{value:.4g}") for name, value in drift.items()]


def find_metric(name: str, metrics: Mapping[str, Any]) -> str | None:
    """The metric of this name, or the one that the name stands for.

    Of one reported at several settings that are numbers (`f1@0.1`, `f1@0.5`, `f1@0.9`) that is the middle one; a
    setting that is a word (`auc@hadamard`) is found where it is the only one.

    Returns:
        Its name; None where there is none, or several of which none comes before the others (`settings_of`).
    """
    if name in metrics:
        return name
    found = settings_of(name, metrics)
    if len(found) == 1:
        return found[0]
    numbers = sorted((float(key.rpartition("@")[2]), key) for key in found if _is_number(key.rpartition("@")[2]))
    return numbers[(len(numbers) - 1) // 2][1] if numbers and len(numbers) == len(found) else None


def settings_of(name: str, metrics: Mapping[str, Any]) -> list[str]:
    """Names of a metric at each setting at which it is reported: `accuracy@validation`, `accuracy@test`."""
    return [key for key in metrics if key.startswith(f"{name}@")]


def the_metric(name: str, metrics: Mapping[str, Any], where: str) -> str:
    """The same as `find_metric`, where there must be one.

    Args:
        name: as a user gave it.
        metrics: by their names.
        where: it was given, for the error.

    Raises:
        UserError: there is none, or several; names them.
    """
    if (found := find_metric(name, metrics)) is not None:
        return found
    if several := settings_of(name, metrics):
        raise UserError("the figure is reported at several settings", where=where, value=name,
                        remedy=f"Name one of {', '.join(sorted(several))}")  # fmt: skip
    raise UserError("no stage reports this figure", where=where, value=name,
                    remedy=nearest(name, list(metrics)) if metrics else "None is reported at all")  # fmt: skip


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?", text) is not None


def metrics_text(declared: Sequence[Metric]) -> str:
    """Declarations as a recorder keeps them with a run, for those who read it without the superworkflow."""
    keys = ("node", "name", "direction", "headline", "uncertainty")
    return json.dumps([{key: asdict(metric)[key] for key in keys} for metric in declared])


def read_metrics(text: str) -> tuple[Metric, ...]:
    """The inverse of `metrics_text`; none where the text is another."""
    try:
        return tuple(
            Metric(str(each["node"]), str(each["name"]), each["direction"], bool(each["headline"]), each["uncertainty"])
            for each in json.loads(text)
            if each["direction"] in DIRECTIONS and isinstance(each["uncertainty"], str)
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()
