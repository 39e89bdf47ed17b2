"""Definition of a superworkflow, and the checks of what it declares."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.import_strings import check_import
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.contract.code_file import CodeFile
from superworkflow.infra.contract.diagram import Diagram, Given, NoOptions
from superworkflow.infra.contract.metrics import DIRECTIONS, Metric
from superworkflow.infra.contract.outcomes import Drift, Model, Outcome, Picture
from superworkflow.infra.contract.panel import Panel
from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.registration import MODEL_NAME
from superworkflow.infra.contract.stage import Stage
from superworkflow.infra.storage.safe_names import is_word

if TYPE_CHECKING:
    from superworkflow.infra.contract.diagram import Node


@dataclass(frozen=True)
class Flag:
    """A command-line flag that sets one parameter, to true or to the text that follows it.

    Args:
        parameter: dotted name, such as `index.directed`.
        help: one line for people.
        metavar: what the text is, for people; without it none follows.
    """

    parameter: str
    help: str
    metavar: str = ""


@dataclass(frozen=True)
class Export:
    """Another format of a result, written on request.

    Args:
        node: name of the node whose dataset is written.
        function: import string of `function(dataset, path)`, which writes a file there, or makes a folder of it.
        filename: ending of its name.
    """

    node: str
    function: str
    filename: str


@dataclass(frozen=True)
class Query:
    """A question about a finished run, asked from Python as a method of it.

    Args:
        node: name of the node whose dataset answers.
        function: import string of `function(dataset, ...)`.
    """

    node: str
    function: str


@dataclass(frozen=True, repr=False)
class Superworkflow:
    """One pipeline that users run by name.

    Args:
        name: as on the command line.
        stages: all stages that the diagram may use.
        sources: help text of each source by name; the ones in `optional` may be left out, those in `datasets` are
            datasets of earlier runs.
        diagram: adds the nodes, given the diagram and the sources by name.
        options: the pipeline's own options, set as `<name>.<option>`.
        optional: names of sources that may be left out.
        datasets: names of sources that are datasets.
        flags: command-line flags of its own, by name.
        outputs: what a run's summary names: title to (node name, name of a file, folder or pattern in its dataset); of
            several node names the first that a run has.
        exports: formats that `--export` can write, by name.
        outcomes: metrics by which runs are judged, the preferred first, models to register, pictures and
            panels to draw.
        prefixes: stages that occur with parameters of their own, by the prefix of these; nodes name it in
            `Diagram.stage(…, params=prefix)`.
        variants: entries that it adds to the `stages` of profiles, by the `variant` of the profile.
        drift: how a run is compared with an earlier one.
        applies: where it applies registered models to new data (`superworkflow predict`), the source that takes a
            dataset of the run that made the model, and the names of stages that make such a dataset.
        in_memory: by source, the import string of `function(value)`, which makes columns by name, or an array, of a
            value in memory, and names the flags that it implies: `(columns, flags)`; None for what it does not take.
        queries: questions about a finished run, by name.
        code: the user's file that defines it; set by its loader.
        own: names of the stages that this file defines.
    """

    name: str
    stages: tuple[Stage[Any], ...]
    sources: Mapping[str, str]
    diagram: Callable[..., None]
    options: type[StageParams] = NoOptions
    optional: frozenset[str] = frozenset()
    datasets: frozenset[str] = frozenset()
    flags: Mapping[str, Flag] = field(default_factory=dict)
    outputs: Mapping[str, tuple[str | tuple[str, ...], str]] = field(default_factory=dict)
    exports: Mapping[str, Export] = field(default_factory=dict)
    help: str = ""
    outcomes: tuple[Outcome, ...] = ()
    prefixes: Mapping[str, Stage[Any]] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    drift: Drift | None = None
    applies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    in_memory: Mapping[str, str] = field(default_factory=dict)
    queries: Mapping[str, Query] = field(default_factory=dict)
    code: CodeFile | None = None
    own: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for prefix in self.prefixes:
            taken = [self.name, *(stage.name for stage in self.stages), *self.sources]
            if not is_word(prefix) or prefix in taken:
                raise UserError(
                    "not a prefix that parameters can have", where=f"superworkflow {self.name}: prefixes",
                    value=prefix, remedy="Give a word of small letters, digits and _ that no stage or source has",
                )  # fmt: skip
        if both := set(self.sources) & set(self.models()):
            raise UserError(
                "a source has the name of a stage", where=f"superworkflow {self.name}: sources",
                value=min(both), remedy="Give each a name of its own: both are arguments of one flow",
            )  # fmt: skip

    def models(self) -> dict[str, type[StageParams]]:
        """Parameter models by prefix: of each stage, of those that have further prefixes, and of the options."""
        own = {prefix: stage.params for prefix, stage in self.prefixes.items()}
        stages = {stage.name: stage.params for stage in self.stages if not stage.params_of}
        return stages | own | {self.name: self.options}

    def output(self, title: str, nodes: Container[str]) -> tuple[str, str] | None:
        """The node that makes an output, and its files; None if it is none of these nodes."""
        return next(((name, self.outputs[title][1]) for name in self.makers(title) if name in nodes), None)

    def makers(self, title: str) -> tuple[str, ...]:
        """Names of the nodes of which the first that a run has makes an output."""
        made_by, _ = self.outputs[title]
        return (made_by,) if isinstance(made_by, str) else made_by

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return tuple(each for each in self.outcomes if isinstance(each, Metric))

    @property
    def registered(self) -> tuple[Model, ...]:
        return tuple(each for each in self.outcomes if isinstance(each, Model))

    @property
    def drift_names(self) -> tuple[str, ...]:
        """Names of the figures of drift that a run may report."""
        return tuple(name for stage in self.stages for name in stage.drift)

    @property
    def pictures(self) -> tuple[Picture, ...]:
        return tuple(each for each in self.outcomes if isinstance(each, Picture))

    @property
    def panels(self) -> tuple[Panel, ...]:
        return tuple(each for each in self.outcomes if isinstance(each, Panel))

    def __repr__(self) -> str:
        return f"<superworkflow {self.name}: {self.help}; stages {', '.join(each.name for each in self.stages)}>"

    def build(self, params: Mapping[str, StageParams], sources: Mapping[str, Given]) -> Diagram:
        """The diagram for these settings.

        Raises:
            UserError: a source is missing, the diagram has other arguments, or an outcome is declared wrongly.
        """
        for name in self.sources:
            if name not in sources and name not in self.optional:
                raise UserError(
                    f"{self.name} needs {self.sources[name]}", where=name, remedy=f"Give it with --{name} FILE"
                )
        diagram = Diagram(params, params[self.name], {name: self.code for name in self.own if self.code is not None})
        given = {name: sources.get(name) for name in self.sources}
        try:
            inspect.signature(self.diagram).bind(diagram, **given)
        except TypeError:
            raise UserError(
                "the diagram has other arguments than there are sources", where=f"superworkflow {self.name}",
                value=str(inspect.signature(self.diagram)), remedy=f"Write def diagram(flow, {', '.join(given)})",
            ) from None  # fmt: skip
        self.diagram(diagram, **given)
        if self.code is not None:
            self._check_stages(diagram)
        check_declarations(self, diagram.nodes, params)
        return diagram

    def _check_stages(self, diagram: Diagram) -> None:
        """Refuse a stage that is not declared: its name was not checked against other stages'."""
        declared = [*self.stages, *self.prefixes.values()]
        for node in diagram.nodes.values():
            if not any(node.stage is each for each in declared):
                raise UserError("this stage is not declared", where=f"superworkflow {self.name}: node {node.name}",
                                value=node.stage.name, remedy="Name it in stages=(…)")  # fmt: skip


_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-]*")


def check_declarations(
    superworkflow: Superworkflow, nodes: Mapping[str, Node], params: Mapping[str, StageParams]
) -> None:
    """Check all that names nodes, parameters or code.

    Args:
        superworkflow: what declares.
        nodes: of the whole diagram.
        params: validated parameters by prefix.

    Raises:
        UserError: the first thing that is wrong.
    """
    prefix = f"superworkflow {superworkflow.name}"
    declared = dict.fromkeys([*nodes, *(stage.name for stage in superworkflow.stages)])  # a diagram may do without some
    for title in superworkflow.outputs:
        for node in superworkflow.makers(title):
            _check_node(node, declared, f"{prefix}: output {title}")
    for name, export in superworkflow.exports.items():
        _check_node(export.node, nodes, f"{prefix}: export {name}")
        check_import(export.function, f"{prefix}: export {name}")
    for name, flag in superworkflow.flags.items():
        _check_parameter(flag.parameter, params, f"{prefix}: flag {name}")
    for outcome in superworkflow.outcomes:
        where = f"{prefix}: {_title(outcome)}"
        if not (outcome.optional and outcome.node not in nodes):
            _check_node(outcome.node, nodes, where, "Or say that diagrams may do without it: optional=True")
        match outcome:
            case Metric():
                _check_metric(outcome, superworkflow, nodes, params, where)
            case Model():
                _check_model(outcome, superworkflow, where)
            case Picture() | Panel():
                check_import(outcome.function, where)
                _check_text(outcome.name, _FILE_NAME, where, "Give the name of a file, without its ending")
                for other in outcome.others if isinstance(outcome, Panel) else ():
                    _check_node(other, declared, where)
    for source in superworkflow.applies:
        if source not in superworkflow.datasets:
            raise UserError("no source that is a dataset", where=f"{prefix}: applies", value=source,
                            remedy="Name it in datasets=")  # fmt: skip
    for node in superworkflow.drift.datasets if superworkflow.drift is not None else ():
        _check_node(node, nodes, f"{prefix}: drift")
    titles = [*superworkflow.outputs, *(each.title for each in superworkflow.registered)]
    for kind, names in (
        ("metric", [each.full_name for each in superworkflow.metrics]),
        ("output or model", titles),
        ("picture", [each.name for each in superworkflow.pictures]),
        ("panel", [each.name for each in superworkflow.panels]),
        ("figure of drift", superworkflow.drift_names),
    ):
        _check_once(names, f"{prefix}: {kind}")


def _check_parameter(dotted: str, params: Mapping[str, StageParams], where: str) -> None:
    prefix, _, field = dotted.partition(".")
    if prefix not in params or field not in type(params[prefix]).model_fields:
        valid = [f"{each}.{name}" for each, model in params.items() for name in type(model).model_fields]
        raise UserError("no such parameter", where=where, value=dotted, remedy=nearest(dotted, valid))


def _title(outcome: Outcome) -> str:
    match outcome:
        case Metric():
            return f"metric {outcome.full_name}"
        case Model():
            return outcome.title if outcome.title == "model" else f"model {outcome.title}"
    return f"{'panel' if isinstance(outcome, Panel) else 'picture'} {outcome.name}"


def _check_node(node: str, nodes: Collection[str], where: str, more: str = "") -> None:
    if node not in nodes:
        remedy = nearest(node, list(nodes))
        remedy += f"{'' if remedy.endswith('?') else '.'} {more}" if more else ""
        raise UserError("the diagram has no such node", where=where, value=node, remedy=remedy)


def _check_metric(
    metric: Metric,
    superworkflow: Superworkflow,
    nodes: Mapping[str, Node],
    params: Mapping[str, StageParams],
    where: str,
) -> None:
    if metric.direction not in DIRECTIONS:
        raise UserError("no such direction", where=where, value=metric.direction, remedy=f"Valid: {DIRECTIONS}")
    if metric.source is not None and metric.source not in superworkflow.sources:
        valid = list(superworkflow.sources)
        raise UserError("no such source", where=where, value=metric.source, remedy=nearest(metric.source, valid))
    for option in metric.options:
        _check_parameter(f"{superworkflow.name}.{option}", params, where)
    for dotted in metric.needs:
        _check_parameter(dotted, params, where)
    if (node := nodes.get(metric.node)) is None:
        return
    for name in filter(None, (metric.name, metric.uncertainty)):
        if name.partition("@")[0] not in node.stage.metrics:
            remedy = nearest(name.partition("@")[0], list(node.stage.metrics)) if node.stage.metrics else "It has none"
            raise UserError(f"stage {node.stage.name} has no such metric", where=where, value=name, remedy=remedy)


def _check_model(model: Model, superworkflow: Superworkflow, where: str) -> None:
    check_import(f"{model.code}:load", where)
    check_import(model.card, where)
    _check_text(model.name, MODEL_NAME, f"{where}: name", "Use letters, digits, -, _ and .")
    if len(superworkflow.registered) > 1:
        _check_text(model.title, MODEL_NAME, f"{where}: title", "Use letters, digits, -, _ and .")
    takers = [name for name in superworkflow.sources if name in superworkflow.optional & superworkflow.datasets]
    for source in model.warm_start:
        if source not in takers:
            raise UserError("no optional source that is a dataset", where=f"{where}: warm_start", value=source,
                            remedy=nearest(source, takers) if takers else "Declare one")  # fmt: skip
    if model.rescore is None:
        return
    declared = {metric.node for metric in superworkflow.metrics}
    if model.rescore.node not in declared:
        raise UserError("no metric is declared of this node", where=f"{where}: rescore", value=model.rescore.node,
                        remedy=nearest(model.rescore.node, list(declared)) if declared else "Declare one")  # fmt: skip


def _check_text(text: str, pattern: re.Pattern[str], where: str, remedy: str) -> None:
    if not pattern.fullmatch(text):
        raise UserError("not a valid name", where=where, value=text, remedy=remedy)


def _check_once(names: Iterable[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UserError("declared twice", where=where, value=name, remedy="Give each a name of its own")
        seen.add(name)
