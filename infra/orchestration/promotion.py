"""The end of a run: its models are registered, compared with the champions, and promoted or rejected."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.request import Request
from superworkflow.infra.contract.diagram import Node
from superworkflow.infra.contract.metrics import headlines
from superworkflow.infra.contract.outcomes import Model
from superworkflow.infra.orchestration.comparison_nodes import RunNodes, dataset_digests, measure_drift, run_added
from superworkflow.infra.process.identity import user_name
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.decision import Decision, Scored, decide
from superworkflow.infra.tracking.records import RunRecord
from superworkflow.infra.tracking.tags import DATA_TAG, DATASETS_TAG

if TYPE_CHECKING:
    from superworkflow.infra.orchestration.deployed_run import DeployedRun
    from superworkflow.infra.tracking.model_versions import Version
    from superworkflow.infra.tracking.models import ModelRegistry

_TRIES = 3
"""Champions that a challenger is compared with at most, where others are promoted at the same time."""


@dataclass(frozen=True)
class Terms:
    """Authority by which a run registers and promotes.

    Args:
        name: registered name of its models; empty to register none.
        who: a person, or the deployment whose run it is.
        withheld: why nothing is promoted without a person; empty where it may be.
    """

    name: str
    who: str
    withheld: str = ""


def terms_of(request: Request, deployed: DeployedRun | None) -> Terms:
    """The terms of a run: a deployment has a name of its own, and promotes what has its own parameters."""
    name, withheld = request.registration.name, ""
    if deployed is not None:
        name = name or re.sub(r"[^\w.\-]+", "-", f"{request.superworkflow.name}-{deployed.title}")
    if deployed is not None and deployed.changed:
        withheld = f"its parameters are not the deployment's ({', '.join(deployed.changed)})"
    elif not request.registration.promote:
        withheld = "promotion is left to people"
    return Terms(name, f"deployment {deployed.name}" if deployed is not None else user_name(), withheld)


def registered_name(base: str, model: Model, models: Sequence[Model]) -> str:
    """Name of one of a superworkflow's models, of which the only one has the whole name."""
    return base if len(models) == 1 else f"{base}-{model.title}"


def warm(request: Request, tracker: Tracker, terms: Terms) -> Request:
    """The request that starts from the champions, where it asks for that and they are there.

    A source that the user gave stays as it is. Without a champion, or where its dataset is not in the store, a run
    starts cold.
    """
    registry = tracker.registry() if request.registration.warm_start and terms.name else None
    if registry is None:
        return request
    found: dict[str, Dataset] = {}
    models = request.superworkflow.registered
    for model in models:
        champion = registry.champion(registered_name(terms.name, model, models)) if model.warm_start else None
        for source, name in model.warm_start.items():
            node, digest = request.diagram.nodes.get(name), champion.datasets.get(name) if champion else None
            if node is not None and digest and source not in request.sources:
                dataset = request.store.find(node.stage.name, digest)
                found |= {source: dataset} if dataset is not None else {}
    return request.given(found) if found else request


def behind(request: Request, tracker: Tracker, terms: Terms) -> str:
    """Sentence on models of which a newer version than the champion was rejected, or waits; empty where none is."""
    registry, models = tracker.registry() if terms.name else None, request.superworkflow.registered
    if registry is None:
        return ""
    words = []
    for model in models:
        name = registered_name(terms.name, model, models)
        challenger, champion = registry.challenger(name), registry.champion(name)
        if challenger is None:
            continue
        using = f"version {champion.version} stays in use" if champion is not None else "none is in use"
        words.append(f"{name} version {challenger.version} {challenger.decision.get('why', 'waits')}; {using}")
    return ". ".join(words)


def register_and_promote(
    request: Request, run: RunRecord, tracker: Tracker, terms: Terms, run_nodes: RunNodes
) -> list[Decision]:
    """Register the models of a run that has all its datasets, and decide on each.

    Args:
        request: of the run.
        run: its record; gets the models' URIs, and records of the nodes that score champions again.
        tracker: where it is recorded.
        terms: see `Terms`.
        run_nodes: see `RunNodes`.
    """
    registry = tracker.registry() if terms.name else None
    if registry is None:
        return []
    outputs = {record.name: record.output for record in run.stages}
    decisions = []
    for model in request.superworkflow.registered:
        if model.node not in outputs:
            continue  # a trial of a sweep runs no more than its objective needs
        name = registered_name(terms.name, model, request.superworkflow.registered)
        with contextlib.closing(Dataset.open(outputs[model.node])) as dataset:
            made = tracker.model(dataset, model, name, _tags(request, model))
        assert made is not None
        own = registry.version(name, made.version)
        decision = _Contest(request, run, registry, model, own, terms, run_nodes).decide()
        run.outputs[model.title] = (
            f"models:/{name}@current" if decision.verdict in ("promoted", "current") else made.uri
        )
        if decision.verdict != "current" or not own.decision:  # how it was compared before it came into use stays
            registry.note(decision, {each.name: each.value for each in headlines(run.metrics, run.declared)})
        tracker.decided(decision)
        decisions.append(decision)
    return decisions


def _tags(request: Request, model: Model) -> dict[str, str]:
    """Tags of a version: the datasets it was made from, and those that it can be scored again with."""
    nodes = request.diagram.nodes
    names = [*(model.rescore.datasets if model.rescore else ()), *model.warm_start.values()]
    datasets = {name: nodes[name].digest for name in names if name in nodes} | dataset_digests(request)
    data = {name: source.digest for name, source in request.sources.items()}
    return {DATASETS_TAG: json.dumps(datasets), DATA_TAG: json.dumps(data)}


@dataclass
class _Contest:
    """One model of a run against the champion of its name."""

    request: Request
    run: RunRecord
    registry: ModelRegistry
    model: Model
    own: Version
    terms: Terms
    run_nodes: RunNodes

    def decide(self) -> Decision:
        for _ in range(_TRIES):
            champion = self.registry.champion(self.own.name)
            if champion is not None and champion.version == self.own.version:
                return self._verdict("current", "the champion already")
            if self.own.moves or (champion is not None and champion.version > self.own.version):
                # The version in use was promoted after this one: no run reverts that.
                using = f"version {champion.version} is in use" if champion is not None else "none is in use"
                return self._verdict("waits", f"registered before, and {using}; a person may promote it")
            self.registry.challenge(self.own)
            decision = self._compare(champion)
            if decision.verdict == "rejected":
                return decision
            if self.terms.withheld:
                return self._waits(decision, self.terms.withheld)
            number = champion.version if champion is not None else None
            moved = self.registry.promote_instead(self.own, number, self.terms.who, decision.why)
            if moved == "moved":
                return decision
            if moved == "held":
                hold = self.registry.hold(self.own.name)
                by = f" by {hold.who} ({hold.why})" if hold is not None else ""
                return self._waits(decision, f"the rollback{by} holds until a person promotes")
        return self._verdict("waits", "other versions were promoted at the same time; a person may promote it")

    def _verdict(self, verdict: Literal["waits", "current"], why: str) -> Decision:
        return Decision(self.own.name, self.own.version, verdict, why)

    @staticmethod
    def _waits(decision: Decision, why: str) -> Decision:
        found = decision.why.removeprefix("promoted: ")
        return replace(decision, verdict="waits", why=f"waits as challenger, since {why}: {found}")

    def _compare(self, champion: Version | None) -> Decision:
        scored = self._scored(champion) if champion is not None else None
        if champion is not None:
            measure_drift(self.request, self.run, champion.datasets, self.run_nodes)
        return decide(self.own.name, self.own.version, self.run.metrics, self.request.superworkflow.metrics, scored,
                      self.request.registration, self.run.drift)  # fmt: skip

    def _scored(self, champion: Version) -> Scored:
        rescoring = self.model.rescore
        if rescoring is None or rescoring.node not in self.request.diagram.nodes:
            return self._recorded(champion)
        datasets: dict[str, Dataset] = {}
        for name in rescoring.datasets:
            node, digest = self.request.diagram.nodes.get(name), champion.datasets.get(name)
            if node is None or not digest:
                continue  # it has none, or is older than the record of them
            found = self.request.store.find(node.stage.name, digest)
            if found is None:
                lost = f"its dataset of {name} is not in this store"
                return Scored(champion.version, fault=f"version {champion.version} cannot be scored again: {lost}")
            datasets[name] = found
        diagram = self.request.diagram.copy()
        added = rescoring.diagram(diagram, dict(diagram.nodes), datasets)
        if added is None:
            return self._recorded(champion)
        nodes = [added] if isinstance(added, Node) else list(added)
        between = [each for name, each in diagram.nodes.items() if name not in self.request.diagram.nodes]
        try:
            for each in between:
                if each not in nodes:
                    run_added(self.run, each, self.run_nodes)
            figures = [self._figures(node, rescoring.node) for node in nodes]
        except UserError as error:  # such as of a model that does not take this run's data
            return Scored(champion.version, fault=f"version {champion.version} cannot be scored again: {error}")
        return Scored(champion.version, figures[0], "rescored", own=figures[1] if len(figures) > 1 else None)

    def _figures(self, node: Node, judge: str) -> dict[str, float]:
        """Run an added node; its figures under the names that they have at the node `judge`."""
        record = run_added(self.run, node, self.run_nodes)
        judged = {each.stage.name: each.name for each in node.inputs.values() if isinstance(each, Node)}
        declared = [
            replace(each, node=node.name, headline=False,
                    baselines=tuple(judged.get(name, name) for name in each.baseline_nodes))
            for each in self.run.declared if each.node == judge
        ]  # fmt: skip
        self.run.declared += tuple(each for each in declared if each not in self.run.declared)
        return {f"{judge}.{name}": value for name, value in record.metrics.items()}

    def _recorded(self, champion: Version) -> Scored:
        return Scored(champion.version, self.registry.recorded(champion), "recorded")
