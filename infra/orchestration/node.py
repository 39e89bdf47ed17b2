"""One node of a diagram: decide from the digest whether anything runs, launch it, and record it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from infra.autosize import placed
from infra.dataset import Dataset
from infra.diagram import Given, Node
from infra.history import remember
from infra.launch.base import Event, Launcher, StageCall
from infra.manifest import Stat
from infra.records import StageRecord, stage_record
from infra.request import Request


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
        The record: `ran`, or `cached` when nothing had to.

    Raises:
        StageFailed, UserError: it ended without its dataset.
    """
    placement = placed(node, request.profile, _stats(node, request))
    location = request.store.location(node.stage.name, node.digest)
    dataset = request.store.find(node.stage.name, node.digest)
    launched = None
    if dataset is None:
        call = StageCall(
            node=node.name,
            stage=node.stage.name,
            params=node.params.model_dump(mode="json"),
            inputs={name: _uri(given, request) for name, given in node.inputs.items()},
            output=location.uri,
            placement=placement,
            labels=labels,
            image_kind=node.stage.image_kind(placement.engine),
        )
        on_event({"event": "resources", "resources": placement.resources})
        launched = launcher.launch(call, on_event)
        dataset = Dataset.open(location)
        if not launched.reused:
            try:
                remember(node, request, placement, launched, dataset)
            except Exception as error:  # of the store's client; a forecast will rest on one run less
                on_event({"event": "log", "stage": node.stage.name, "message": f"not kept for forecasts: {error}"})
    return stage_record(node, dataset.manifest, dataset.uri, placement.resources, request.prices, launched)


def _stats(node: Node, request: Request) -> dict[str, Mapping[str, Stat]]:
    """True stats of the inputs, where the profile leaves sizes to the estimate."""
    if not request.profile.placement(node.name, node.stage.name).auto:
        return {}
    return {
        name: Dataset.open(request.store.location(given.stage.name, given.digest)).stats
        if isinstance(given, Node)
        else given.stats
        for name, given in node.inputs.items()
    }


def _uri(given: Node | Given, request: Request) -> str:
    return request.store.location(given.stage.name, given.digest).uri if isinstance(given, Node) else given.uri
