"""Nodes that are added to a run to compare it with an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from superworkflow.infra.config.request import Request
from superworkflow.infra.contract.diagram import Node
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.tracking.records import RunRecord, StageRecord

RunNodes = Callable[[Sequence[Node]], None]
"""Runs further nodes of a run, each of which gets a record."""


def run_added(run: RunRecord, node: Node, run_nodes: RunNodes) -> StageRecord:
    """Run an added node; it replaces one of the same name that compared with something else."""
    digests = {record.name: record.digest for record in run.stages}
    if digests.get(node.name) != node.digest:
        run.stages[:] = [record for record in run.stages if record.name != node.name]
        run_nodes([node])
    (record,) = [record for record in run.stages if record.name == node.name]
    return record


def dataset_digests(request: Request) -> dict[str, str]:
    """Digests by node of the datasets of a run with which later ones are compared."""
    nodes, drift = request.diagram.nodes, request.superworkflow.drift
    return {name: nodes[name].digest for name in (drift.datasets if drift is not None else ()) if name in nodes}


def measure_drift(request: Request, run: RunRecord, before: Mapping[str, str], run_nodes: RunNodes) -> None:
    """Compare a run that has all its datasets with an earlier one, as its superworkflow says.

    Where a dataset of the earlier one is not in the store any more, what needs it is left out.

    Args:
        request: of the run.
        run: gets the record of the node that compares.
        before: digests by node of the earlier run's datasets.
        run_nodes: see `RunNodes`.
    """
    drift = request.superworkflow.drift
    if drift is None:
        return
    datasets: dict[str, Dataset] = {}
    for name in drift.datasets:
        node, digest = request.diagram.nodes.get(name), before.get(name)
        found = request.store.find(node.stage.name, digest) if node is not None and digest else None
        if found is not None:
            datasets[name] = found
        elif before:
            from prefect import get_run_logger  # a run outside of flows compares nothing

            get_run_logger().warning("drift: the earlier dataset of %s is not in this store", name)
    diagram = request.diagram.copy()
    added = drift.diagram(diagram, dict(diagram.nodes), datasets) if datasets else None
    if added is not None:
        run_added(run, added, run_nodes)
