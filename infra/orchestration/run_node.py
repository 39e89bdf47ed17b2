"""One node of a diagram: decide from the digest whether anything runs, launch it, and record it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from superworkflow.infra.base.errors import SuperworkflowError
from superworkflow.infra.config.profile import Placement
from superworkflow.infra.config.request import Request
from superworkflow.infra.contract.diagram import Given, Node
from superworkflow.infra.contract.estimate import input_stats
from superworkflow.infra.engines import image_kind
from superworkflow.infra.launch.base import Event, Launched, Launcher, StageCall
from superworkflow.infra.planning.autosize import placed
from superworkflow.infra.planning.launch_history import remember
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.manifest import Stat
from superworkflow.infra.storage.source import Source
from superworkflow.infra.tracking.records import StageRecord, Used, failed_record, stage_record


def run_node(
    node: Node,
    request: Request,
    launcher: Launcher,
    on_event: Callable[[Event], None],
    labels: Mapping[str, str],
) -> StageRecord:
    """Make sure that the node's dataset exists.

    Args:
        node: which stage, with what.
        request: store, profile and prices.
        launcher: where it runs when it must.
        on_event: receives its resources, then progress and log events while it runs.
        labels: what the launcher attaches to what it starts.

    Returns:
        The record: `ran`, or `cached` when nothing had to. What ran for a run that died before it recorded that is
        recorded here.

    Raises:
        StageFailed, UserError: it ended without its dataset; `record` of either says what it cost.
    """
    turn = time.time()
    stats = _stats(node, request) if request.profile.placement(node.name, node.stage.name).auto else {}
    placement = placed(node, request.profile, stats)
    location = request.store.location(node.stage.name, node.digest)
    dataset = request.store.find(node.stage.name, node.digest)
    launched = None
    if dataset is None:
        call = StageCall(
            node=node.name,
            stage=node.stage.name,
            params=node.params.model_dump(mode="json"),
            inputs={name: _uri(given, request) for name, given in node.inputs.items()},
            sources={name: given for name, given in node.inputs.items() if isinstance(given, Source)},
            output=location.uri,
            placement=placement,
            labels=labels,
            image_kind=image_kind(node.stage, placement.engine),
            digest=node.digest,
            expected_memory=_expected_memory(node, request, placement, stats),
            code=node.code.keep(request.store) if node.code is not None else "",
        )
        on_event({"event": "resources", "resources": placement.resources})
        try:
            launched = launcher.launch(call, on_event)
        except SuperworkflowError as error:
            error.record = failed_record(node, location.uri, placement.resources, request.prices, error).queued_since(
                turn
            )
            raise
        dataset = request.store.open(node.stage.name, node.digest)
        if not launched.reused:
            try:
                remember(node, request, placement, launched, dataset)
            except Exception as error:  # of the store's client; a forecast will rest on one run less
                on_event({"event": "log", "stage": node.stage.name, "message": f"not kept for forecasts: {error}"})
    elif attempts := launcher.claim_orphans(location.uri):
        # Made for a run that died before it recorded this; where it did not make it, it has cost all the same.
        made = any(attempt.reason is None for attempt in attempts)
        seconds = sum(attempt.seconds for attempt in attempts)
        launched = Launched(dataset.manifest.measured, reused=not made, seconds=seconds, attempts=attempts)
    record = stage_record(node, dataset.manifest, dataset.uri, placement.resources, request.prices, launched)
    inputs = tuple(_used(name, given, request) for name, given in node.inputs.items())
    return replace(record, inputs=inputs).queued_since(turn)


def _used(name: str, given: Node | Given, request: Request) -> Used:
    return Used(name, given.digest, _uri(given, request))


def used_sources(request: Request) -> tuple[Used, ...]:
    """Sources of a run."""
    found = []
    for name, given in request.sources.items():
        origin = {"origin": request.origins[name]} if name in request.origins else {}
        found.append(replace(_used(name, given, request), facts=_facts(given) | origin))
    return tuple(found)


def used_datasets(nodes: Collection[Node]) -> set[str]:
    """Datasets that these nodes read or make, by `<stage>/<digest>`."""
    made = {f"{node.stage.name}/{node.digest}" for node in nodes}
    given = [each for node in nodes for each in node.inputs.values() if isinstance(each, Dataset)]
    return made | {f"{each.manifest.stage}/{each.digest}" for each in given}


def _facts(given: Given) -> dict[str, Stat]:
    if isinstance(given, Source):
        return {"bytes": given.total_bytes, "files": len(given.files())}
    return {"bytes": given.manifest.bytes, "files": len(given.manifest.files), "rows": given.manifest.rows}


def _expected_memory(
    node: Node, request: Request, placement: Placement, stats: Mapping[str, Mapping[str, Stat]]
) -> int:
    """Peak by the stage's own estimate, for launchers that remember what was enough; others do without its cost."""
    if request.profile.launcher != "kubernetes":
        return 0
    return node.stage.estimate(node.params, stats or _stats(node, request), placement.resources).memory_bytes


def _stats(node: Node, request: Request) -> dict[str, Mapping[str, Stat]]:
    """True stats of the inputs."""
    return {
        name: input_stats(request.store.open(given.stage.name, given.digest))
        if isinstance(given, Node)
        else node.stats_of(name)
        for name, given in node.inputs.items()
    }


def _uri(given: Node | Given, request: Request) -> str:
    return request.store.location(given.stage.name, given.digest).uri if isinstance(given, Node) else given.uri
