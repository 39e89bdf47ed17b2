"""What a superworkflow declares of its outcomes, held against the diagram: wrong declarations end no finished run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from superworkflow.infra.errors import UserError
from superworkflow.infra.import_strings import check_import
from superworkflow.infra.outcomes import DIRECTIONS, Metric, Model, Outcome, Picture
from superworkflow.infra.params import StageParams, nearest
from superworkflow.infra.promotion import MODEL_NAME

if TYPE_CHECKING:
    from superworkflow.infra.diagram import Node, Superworkflow

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
        _check_parameter(flag.parameter, params, f"{at}: flag {name}")
    for outcome in superworkflow.outcomes:
        where = f"{at}: {_title(outcome)}"
        if not (outcome.optional and outcome.node not in nodes):
            _check_node(outcome.node, nodes, where, "Or say that diagrams may do without it: optional=True")
        match outcome:
            case Metric():
                _check_metric(outcome, superworkflow, nodes, params, where)
            case Model():
                _check_model(outcome, superworkflow, where)
            case Picture():
                check_import(outcome.function, where)
                _check_text(outcome.name, _FILE_NAME, where, "Give the name of a file, without its ending")
    for node in superworkflow.drift.datasets if superworkflow.drift is not None else ():
        _check_node(node, nodes, f"{at}: drift")
    titles = [*superworkflow.outputs, *(each.title for each in superworkflow.registered)]
    for kind, names in (
        ("metric", [each.full_name for each in superworkflow.metrics]),
        ("output or model", titles),
        ("picture", [each.name for each in superworkflow.pictures]),
        ("figure of drift", superworkflow.drift_names),
    ):
        _check_once(names, f"{at}: {kind}")


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
        _check_parameter(f"{superworkflow.name}.{option}", params, where)
    if (node := nodes.get(metric.node)) is None:
        return
    for name in filter(None, (metric.name, metric.uncertainty)):
        if name.partition("@")[0] not in node.stage.metrics:
            remedy = nearest(name.partition("@")[0], list(node.stage.metrics)) if node.stage.metrics else "It has none"
            raise UserError(f"stage {node.stage.name} has no such metric", where=where, value=name, remedy=remedy)


def _check_model(model: Model, superworkflow: Superworkflow, where: str) -> None:
    check_import(model.code, where)
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
