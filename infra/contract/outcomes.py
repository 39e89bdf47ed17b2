"""Outcomes of a superworkflow: metrics by which runs are judged, models to register, pictures and panels to draw.

    outcomes=(
        Metric("fit", "rmse", "minimize", headline=True, uncertainty="rmse_std"),
        Model("fit", code="my.package.serving", card="my.package.model:card", name="price-model"),
        Picture("fit", "my.package.picture:draw", "residuals"),
    )

All of it is checked when the diagram is built, before any stage starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from superworkflow.infra.contract.metrics import Metric
from superworkflow.infra.contract.panel import Panel

if TYPE_CHECKING:
    from superworkflow.infra.contract.diagram import Diagram, Node
    from superworkflow.infra.storage.dataset import Dataset


@dataclass(frozen=True)
class Model:
    """A dataset that is registered as a model, with the code that serves it.

    Args:
        node: whose dataset it is.
        code: import path of the module that serves it, or of a package whose modules import each other relatively. Its
            files are kept with the model and run where this project is not installed: `load(folder)` is given the
            dataset's files and returns an object whose `predict(table, options)` answers a pandas table with another;
            ValueError refuses a request.
        card: import string of `card(dataset)`, which returns a `ModelCard`.
        name: registered name where neither a deployment nor `run --register` gives one.
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
    """Rescoring of an earlier model by the evaluation of a later run.

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
    """Comparison of a run's data and model with earlier ones.

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
    """Description of a model for its registry and its users.

    Args:
        kind: such as `regression`.
        columns: of a request, in MLflow's form: `{"name": "node", "type": "string", "required": False}`; kept with the
            model. A list or array is taken for values of the first ones.
        options: of a request, with their defaults.
        example: rows of a request.
        answer: columns of an answer, in MLflow's form; the signature's outputs. Those that only some options give are
            not required.
        example_options: options of that request.
        facts: shown with the model, and searchable.
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
    answer: Sequence[Mapping[str, Any]] = ()


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


Outcome = Metric | Model | Picture | Panel
