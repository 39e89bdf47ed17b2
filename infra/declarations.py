"""What a superworkflow declares of its outcomes, held against the diagram: wrong declarations end no finished run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from superworkflow.infra.errors import UserError
from superworkflow.infra.import_strings import check_import
from superworkflow.infra.outcomes import DIRECTIONS, Metric, Model, Outcome, Parameter, Picture
from superworkflow.infra.params import StageParams, nearest

if TYPE_CHECKING:
    from superworkflow.infra.diagram import Node, Superworkflow

_MODEL_NAME = re.compile(r"[\w.\- ]+")
_ALIAS = re.compile(r"(?!(?i:latest|v\d+)$)[A-Za-z0-9_\-]+")
"""As MLflow takes them: it keeps `latest` and `v1` to itself."""
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
    at = f"superworkflow {superworkflow.name}"
    for title, (node, _) in superworkflow.outputs.items():
        _check_node(node, nodes, f"{at}: output {title}")
    for name, export in superworkflow.exports.items():
        _check_node(export.node, nodes, f"{at}: export {name}")
        check_import(export.function, f"{at}: export {name}")
    for name, flag in superworkflow.flags.items():
        parameter(Parameter(flag.parameter), params, f"{at}: flag {name}")
    for outcome in superworkflow.outcomes:
        where = f"{at}: {_title(outcome)}"
        if not (outcome.optional and outcome.node not in nodes):
            _check_node(outcome.node, nodes, where, "Or say that diagrams may do without it: optional=True")
        match outcome:
            case Metric():
                _check_metric(outcome, superworkflow, nodes, params, where)
            case Model():
                _check_model(outcome, params, where)
            case Picture():
                check_import(outcome.function, where)
                _check_text(outcome.name, _FILE_NAME, where, "Give the name of a file, without its ending")
    titles = [*superworkflow.outputs, *(each.title for each in superworkflow.registered)]
    for kind, names in (
        ("metric", [each.full_name for each in superworkflow.metrics]),
        ("output or model", titles),
        ("picture", [each.name for each in superworkflow.pictures]),
    ):
        _check_once(names, f"{at}: {kind}")


def parameter(value: str | Parameter, params: Mapping[str, StageParams], where: str) -> str:
    """The text, or what the parameter says.

    Raises:
        UserError: there is no such parameter.
    """
    if isinstance(value, str):
        return value
    prefix, _, field = value.dotted.partition(".")
    if prefix not in params or field not in type(params[prefix]).model_fields:
        valid = [f"{each}.{name}" for each, model in params.items() for name in type(model).model_fields]
        raise UserError("no such parameter", where=where, value=value.dotted, remedy=nearest(value.dotted, valid))
    return str(getattr(params[prefix], field))


def _title(outcome: Outcome) -> str:
    match outcome:
        case Metric():
            return f"metric {outcome.full_name}"
        case Model():
            return outcome.title if outcome.title == "model" else f"model {outcome.title}"
    return f"picture {outcome.name}"


def _check_node(node: str, nodes: Mapping[str, Node], where: str, more: str = "") -> None:
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
        parameter(Parameter(f"{superworkflow.name}.{option}"), params, where)
    if (node := nodes.get(metric.node)) is None:
        return
    for name in filter(None, (metric.name, metric.uncertainty)):
        if name.partition("@")[0] not in node.stage.metrics:
            remedy = nearest(name.partition("@")[0], list(node.stage.metrics)) if node.stage.metrics else "It has none"
            raise UserError(f"stage {node.stage.name} has no such metric", where=where, value=name, remedy=remedy)


def _check_model(model: Model, params: Mapping[str, StageParams], where: str) -> None:
    check_import(model.code, where)
    check_import(model.card, where)
    _check_text(parameter(model.name, params, where), _MODEL_NAME, f"{where}: name", "Use letters, digits, -, _ and .")
    _check_text(
        parameter(model.alias, params, where), _ALIAS, f"{where}: alias",
        "Use letters, digits, - and _, but not latest or v1, which MLflow keeps to itself",
    )  # fmt: skip


def _check_text(text: str, pattern: re.Pattern[str], where: str, remedy: str) -> None:
    if not pattern.fullmatch(text):
        raise UserError("not a valid name", where=where, value=text, remedy=remedy)


def _check_once(names: Iterable[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UserError("declared twice", where=where, value=name, remedy="Give each a name of its own")
        seen.add(name)
