"""Objectives of a sweep: quality figures that stages report, or the cost of a trial."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.contract.diagram import Diagram, Node, with_upstream
from superworkflow.infra.contract.metrics import Metric, find_metric, settings_of, the_metric
from superworkflow.infra.contract.superworkflow import Superworkflow

COST, SECONDS, QUALITY = "cost", "seconds", "quality"


@dataclass(frozen=True)
class SweepObjective:
    """One figure of a trial.

    Args:
        name: `node.metric`, or `cost` (USD) or `seconds` of the whole configuration. Both include what is taken from
            the store, so that they do not depend on earlier trials. On this machine, which trials share, `cost` counts
            CPU seconds.
        maximize: larger is better.
    """

    name: str
    maximize: bool

    @property
    def node(self) -> str | None:
        """Node of the diagram that reports it; None for a sum over all nodes."""
        return None if self.name in (COST, SECONDS) else self.name.partition(".")[0]

    @property
    def metric(self) -> str:
        return self.name.partition(".")[2] or self.name

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        return "maximize" if self.maximize else "minimize"

    def value(self, metrics: Mapping[str, float], cost_usd: float, seconds: float) -> float:
        """The figure of one trial.

        Args:
            metrics: reported by the node's stage, NaN for those that were NaN or infinite.
            cost_usd: of the whole configuration.
            seconds: of the whole configuration.

        Raises:
            UserError: no stage reported it, it is NaN or infinite, or it was reported at several settings, which the
                message names.
        """
        if self.name == COST:
            return cost_usd
        if self.name == SECONDS:
            return seconds
        name = the_metric(self.metric, metrics, "--objective")
        if not math.isfinite(metrics[name]):
            raise UserError("the metric is NaN or infinite", where=f"{self.node}.{name}")
        return metrics[name]


def parse_objectives(
    texts: Sequence[str], quality: Metric | None, declared: Sequence[Metric] = ()
) -> tuple[SweepObjective, ...]:
    """Objectives as a user names them: `quality`, `cost`, `seconds`, `node.metric`.

    A metric is improved in the direction that its superworkflow declares, one that it does not declare is maximized;
    `-node.metric` is minimized.

    Args:
        texts: at least one.
        quality: what `quality` stands for.
        declared: the superworkflow's metrics.

    Raises:
        UserError: not of that form, the same twice, or declared at several settings of which none is named.
    """
    found: list[SweepObjective] = []
    for text in texts:
        name, maximize = (text[1:], False) if text.startswith("-") else (text, True)
        if name == QUALITY:
            if quality is None:
                sources = sorted({f"--{metric.source}" for metric in declared if metric.source})
                raise UserError(
                    "there is nothing to judge a trial's quality by", where="--objective", value=text,
                    remedy=f"Give {' or '.join([*sources, 'a figure as NODE.METRIC'])}",
                )  # fmt: skip
            name = quality.full_name
        if name in (COST, SECONDS):
            maximize = False
        elif not re.fullmatch(r"[\w-]+\.[\w@.%-]+", name):
            raise UserError(
                "not an objective", where="--objective", value=text,
                remedy="Write quality, cost, seconds or NODE.METRIC",
            )  # fmt: skip
        names = {each.full_name: each for each in declared}
        if settings_of(name, names):
            the_metric(name, names, "--objective")
        metric = declared_metric(name, declared)
        found.append(SweepObjective(name, maximize and (metric is None or metric.direction == "maximize")))
    if len({objective.name for objective in found}) < len(found):
        raise UserError("the same objective twice", where="--objective", value=",".join(texts))
    return tuple(found)


def declared_metric(name: str, declared: Sequence[Metric]) -> Metric | None:
    """The declaration of a metric, at whatever setting."""
    names = {each.full_name: each for each in declared}
    found = find_metric(name, names)
    return next((each for each in declared if each.covers(name)), names[found] if found else None)


def choose_quality(
    superworkflow: Superworkflow, sources: Sequence[str], diagram: Diagram | None = None
) -> Metric | None:
    """The first headline metric of a superworkflow that the given sources suffice for.

    Args:
        superworkflow: declares the metrics.
        sources: names of the given sources.
        diagram: headlines of its nodes are preferred, first those that need its parameters.
    """
    headlines = [metric for metric in superworkflow.metrics if metric.headline]
    found = [each for each in headlines if each.source is None or each.source in sources]
    if diagram is not None:
        found = [
            each for each in found if all(_fits(diagram.parameter(name), value) for name, value in each.needs.items())
        ]
        found.sort(key=lambda each: not each.needs)
    return next((each for each in found if diagram is None or each.node in diagram.nodes), found[0] if found else None)


def _fits(value: Any, needed: Any) -> bool:
    """True if a parameter has the value that a metric needs, or one of several."""
    return bool(value in needed if isinstance(needed, tuple) else value == needed)


def judged_node(diagram: Diagram, objectives: Sequence[SweepObjective]) -> Node | None:
    """The node whose intermediate values predict the objective: the objective's own, or the nearest upstream.

    Only one node counts: values of two nodes are not comparable.

    Returns:
        A node whose stage reports intermediate values; None if neither the objective's node nor one upstream does.
    """
    nodes = with_upstream(diagram.nodes[each.node] for each in objectives if each.node is not None)
    return next((node for node in nodes if node.stage.steps is not None), None)


def needed_nodes(diagram: Diagram, objectives: Sequence[SweepObjective]) -> list[str]:
    """Nodes that the objectives depend on, in the diagram's order; all when none names a node.

    Raises:
        UserError: an objective names no node of the diagram, or no metric that its stage declares.
    """
    targets = []
    for objective in objectives:
        if (target := objective.node) is None:
            continue
        if target not in diagram.nodes:
            raise UserError(
                "no such stage in this pipeline", where="--objective", value=target,
                remedy=nearest(target, list(diagram.nodes)),
            )  # fmt: skip
        valid = diagram.nodes[target].stage.metrics
        if valid and objective.metric.partition("@")[0] not in valid:
            raise UserError(
                "no stage reports this figure", where="--objective", value=objective.name,
                remedy=nearest(objective.metric, list(valid), f"{target}."),
            )  # fmt: skip
        targets.append(target)
    if not targets:
        return list(diagram.nodes)
    needed = {node.name for node in with_upstream(diagram.nodes[name] for name in targets)}
    return [name for name in diagram.nodes if name in needed]
