"""From the end of a Job to what a launcher returns or raises."""

from __future__ import annotations

from collections.abc import Sequence

from superworkflow.infra.base.errors import StagedUserError, StageFailed, SuperworkflowError
from superworkflow.infra.config.usage import Holding, held
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.base import Attempt, Launched, StageCall
from superworkflow.infra.launch.kubernetes.job_follower import Ended
from superworkflow.infra.process.exit_status import Reason
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.manifest import Measurement


def peak_memory(ended: Ended, dataset: Dataset, role: str) -> int:
    """Peak bytes of the stage's own pod, or of a member of a role, as the limit counts them; 0 when unknown."""
    if role:
        return int(ended.figures.get(f"{role}_peak_memory_bytes", 0))
    return dataset.manifest.measured.memory_bytes


def job_attempt(
    resources: Resources, seconds: float, reason: Reason | None, uid: str, members: Sequence[Holding]
) -> Attempt:
    """One Job as an attempt: its own pod held its part for `seconds`, and each member what it was seen to hold.

    Members that were never seen cost nothing: they never got a node.
    """
    return Attempt(resources, seconds, reason, uid, (*held(resources.only(), seconds), *members))


def launched(ended: Ended, dataset: Dataset, resources: Resources, paid: list[Attempt], reused: bool) -> Launched:
    """Result of a launch: figures of the Job that ended, and its usage where it made the dataset."""
    measured: Measurement = dataset.manifest.measured
    figures = dict(ended.figures)
    if ended.exit_code is not None:
        figures |= {"requested_memory_bytes": float(resources.memory), "requested_cpu": resources.cpu}
    if ended.made_dataset and measured.container_peak_memory_bytes is not None:
        figures["container_peak_memory_bytes"] = float(measured.container_peak_memory_bytes)
        figures["used_memory_share"] = measured.container_peak_memory_bytes / resources.memory
    if ended.made_dataset and measured.container_cpu_s is not None:
        figures["container_cpu_s"] = measured.container_cpu_s
        figures["used_cpu_share"] = measured.container_cpu_s / max(measured.runtime_s, 1e-3) / resources.cpu
    return Launched(measured, reused, sum(a.seconds for a in paid), tuple(paid), figures, ended.image)


def vanished(call: StageCall) -> StageFailed:
    """The error where datasets that other runs had made were gone each time before they could be used."""
    remedy = (
        f"Find out what removes datasets from {call.place.store.uri}, and check that pods and this machine see the "
        "same store."
    )
    message = "another run reported the dataset complete, but it was missing both times."
    return StageFailed(call.node, message, remedy)


def failure(original: StageCall, call: StageCall, ended: Ended) -> SuperworkflowError:
    """The error of a Job that made no dataset; messages name the inputs of the original call."""
    final, diagnosis = ended.final, ended.diagnosis
    if final is not None and final["event"] == "error" and (diagnosis is None or diagnosis.reason is Reason.FAILED):
        message = str(final["message"])
        for name, uri in call.inputs.items():
            message = message.replace(uri, original.inputs[name])  # users know their own file, not its copy
        if final.get("user"):
            return StagedUserError(message)
        return StageFailed(call.node, message, "See its log above.", ended.exit_code)
    if diagnosis is None:
        remedy = f"Check that pods and this machine see the same store: {call.place.store.uri}."
        return StageFailed(call.node, "it succeeded but left no dataset.", remedy, 0)
    return StageFailed(call.node, f"{diagnosis.summary}.", diagnosis.resolution, ended.exit_code)
