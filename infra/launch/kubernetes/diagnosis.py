"""Why a Kubernetes Job made no dataset: pure functions of what the API says of the Job and of its pod.

All arguments are JSON objects as the API gives them. Nothing here asks the cluster, so that every case can be tested.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from superworkflow.infra.contract.progress import output_events
from superworkflow.infra.launch.kubernetes.api import Json
from superworkflow.infra.launch.kubernetes.pod_status import PodStatus, condition
from superworkflow.infra.launch.kubernetes.quantities import quantity
from superworkflow.infra.process.exit_status import Diagnosis, Reason, diagnose_exit

_IMAGE_REASONS = {
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
    "RegistryUnavailable",
}  # fmt: skip
_START_REASONS = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError"}
_LOST_REASONS = {"NodeLost", "DeletionByTaintManager", "DeletionByPodGC", "NodeShutdown", "Shutdown", "Terminated"}
_PREEMPTED_REASONS = {"EvictionByEvictionAPI", "PreemptionByScheduler", "PreemptionByKubeScheduler", "Preempting"}
_RESOURCES = {
    "cpu": "CPU",
    "memory": "memory",
    "ephemeral-storage": "ephemeral storage",
    "nvidia.com/gpu": "GPUs",
}


def waiting_problem(pod: Json | None, events: Sequence[Json] = ()) -> Diagnosis | None:
    """Problem that keeps a pod from starting, or None.

    These may pass: a node joins, a registry comes back. How long to wait is the caller's choice.

    Args:
        pod: the pod, None before the Job has one.
        events: events about the pod, or about the Job while it has none.
    """
    if pod is None:
        refused = _event(events, "FailedCreate")
        if refused is None:
            return None
        if "exceeded quota" in refused and not _above_quota(refused):
            return Diagnosis(
                Reason.UNSCHEDULABLE,
                f"the namespace's quota is in use ({refused})",
                "Wait for other Jobs, ask for less in the profile, or have the quota raised.",
            )
        if "must specify" in refused and "limits.cpu" in refused:
            return Diagnosis(
                Reason.REFUSED,
                f"the namespace's quota requires a CPU limit ({refused})",
                "Set `kubernetes.cpu_limit` in the profile, such as 1 for limits equal to requests.",
            )
        return Diagnosis(
            Reason.REFUSED,
            f"the cluster refuses the pod: {refused}",
            "Check the namespace's quota, limits, pod security and service account.",
        )
    found = PodStatus(pod)
    scheduled = condition(found.status, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return _unschedulable(str(scheduled.get("message") or ""))
    waiting = found.state.get("waiting") or {}
    reason, message = waiting.get("reason"), str(waiting.get("message") or "")
    image = _image(pod)
    if reason in _IMAGE_REASONS:
        detail = _event(events, "Failed") or message
        return Diagnosis(
            Reason.IMAGE_MISSING,
            f"the image {image} cannot be pulled ({reason}{': ' + _short(detail) if detail else ''})",
            "Build and push it, correct its name in the profile, or give an image pull secret.",
        )
    if reason in _START_REASONS:
        return Diagnosis(
            Reason.NOT_STARTED,
            f"the container cannot start ({reason}: {_short(message)})",
            "Check the Secrets, volumes and command that the profile names.",
        )
    mount = _event(events, "FailedMount") or _event(events, "FailedAttachVolume")
    if mount is not None and not found.started:
        return Diagnosis(
            Reason.NOT_STARTED, f"a volume cannot be mounted ({_short(mount)})", "Check the volumes of the profile."
        )
    # Only while nothing came after it: the next try often succeeds, and then an image may take long to be pulled.
    if events and events[-1].get("reason") == "FailedCreatePodSandBox" and not found.started:
        return Diagnosis(
            Reason.NOT_STARTED,
            f"its node cannot create pods ({_short(str(events[-1].get('message') or ''))})",
            "Check the node's container runtime, network plugin and disk.",
        )
    return None


def diagnose(job: Json | None, pod: Json | None) -> Diagnosis | None:
    """Why a Job ended without success; None when it succeeded or has not ended.

    Args:
        job: the Job, None when the API no longer has it.
        pod: the Job's newest pod as last seen, None when none was ever seen.
    """
    seen = PodStatus(pod)
    status, ended, killed = seen.status, seen.terminated, seen.exit_code in (137, 143)
    failed = condition((job or {}).get("status") or {}, "Failed")
    failed = failed if failed.get("status") == "True" else {}
    if "DeadlineExceeded" in (failed.get("reason"), status.get("reason")):
        return past_deadline(job or {})
    if ended.get("reason") == "OOMKilled":
        return _out_of_memory(pod or {})
    if (found := _disrupted(status)) is not None:
        return found
    if job is None and (not ended or killed):
        return Diagnosis(Reason.DELETED, "the Job was deleted while it ran", "Run again to resume.")
    if "deletionTimestamp" in seen.metadata and killed:
        return pod_deleted("its pod was deleted while it ran")
    if ended and seen.exit_code != 0:
        return _exit(ended, pod or {})
    if failed:
        message = str(failed.get("message") or failed.get("reason") or "no reason given")
        if pod is None or not ended:
            return pod_deleted(f"the Job's pod was deleted while it ran ({_short(message)})")
        return Diagnosis(Reason.FAILED, f"the Job failed: {_short(message)}", "See its log above.")
    return None


def past_deadline(job: Json) -> Diagnosis:
    """The diagnosis of a Job that took longer than it may."""
    seconds = (job.get("spec") or {}).get("activeDeadlineSeconds")
    after = f" of {seconds} s" if seconds else ""
    return Diagnosis(
        Reason.DEADLINE,
        f"it did not end within its deadline{after}",
        "Give the stage more resources, or the profile a longer `kubernetes.deadline_s`.",
    )


def _out_of_memory(pod: Json) -> Diagnosis:
    limit = PodStatus(pod).memory_limit
    return Diagnosis(
        Reason.OUT_OF_MEMORY,
        "it ran out of memory" + (f" (its limit was {_quantity(limit)})" if limit else ""),
        "Give the stage more memory in the profile, or raise `kubernetes.memory_cap`.",
    )


def pod_deleted(summary: str) -> Diagnosis:
    """Diagnosis of a Job that is still wanted but whose pod is gone, as after the drain of its node."""
    return Diagnosis(Reason.EVICTED, summary, "Run again to resume.", disrupted=True)


def _disrupted(status: Json) -> Diagnosis | None:
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    target = condition(status, "DisruptionTarget")
    if target.get("status") == "True":
        reason = reason or str(target.get("reason") or "")
        message = message or str(target.get("message") or "")
    if reason == "Evicted" or reason in _PREEMPTED_REASONS or reason == "TerminationByKubelet":
        disk = "ephemeral" in message.lower()
        return Diagnosis(
            Reason.EVICTED,
            f"its pod was evicted ({_short(message) or reason})",
            "Give the stage more `ephemeral_storage`." if disk else "Run again to resume; check what the node lacks.",
            disrupted=not disk,
        )
    if reason in _LOST_REASONS or status.get("phase") == "Unknown":
        return Diagnosis(
            Reason.NODE_LOST, f"its node was lost ({_short(message) or reason or 'no heartbeat'})",
            "Run again to resume.", disrupted=True,
        )  # fmt: skip
    short = re.fullmatch(r"OutOf(.+)", reason)
    if short or reason in ("UnexpectedAdmissionError", "NodeAffinity"):
        what = f": {_RESOURCES.get(short[1], short[1])}" if short else ""
        return Diagnosis(
            Reason.UNSCHEDULABLE, f"its node rejected it{what} ({_short(message) or reason})", "Run again.",
            disrupted=True,
        )  # fmt: skip
    return None


def _exit(ended: Json, pod: Json) -> Diagnosis:
    code = int(ended["exitCode"])
    said = _error_event(str(ended.get("message") or ""))
    if said is not None:
        if said.get("out_of_memory_kills") and not said.get("user"):
            return _out_of_memory(pod)  # a child process of the stage was killed, and the stage reported it
        return Diagnosis(Reason.FAILED, str(said.get("message")).rstrip("."), "See its log above.")
    found = diagnose_exit(code)
    if found.reason is Reason.KILLED:
        # Where the kernel did it for lack of memory in the container, the container is called OOMKilled.
        summary = "the process was killed (SIGKILL); the cluster reports no lack of memory"
        return Diagnosis(Reason.KILLED, summary, "Run again to resume; check what happened on its node.")
    if code in (126, 127) or ended.get("reason") in ("ContainerCannotRun", "StartError"):
        return Diagnosis(
            Reason.NOT_STARTED,
            f"the image {_image(pod)} cannot run the command ({_short(str(ended.get('message') or ''))})",
            "Check the image and `kubernetes.command`.",
        )
    return found


def _error_event(text: str) -> Json | None:
    """The stage's own words among the last lines of its output, which Kubernetes keeps with a failed container."""
    for line in reversed(text.splitlines()):
        event = output_events(line, "")[-1]
        if event["event"] == "error":
            return event
    return None


def _above_quota(message: str) -> bool:
    """True if the pod asks for more than the quota allows in all, so that waiting is in vain."""

    def amounts(kind: str) -> dict[str, float]:
        found = re.search(rf"{kind}: (\S+)", message)
        pairs = [pair.partition("=") for pair in found[1].rstrip(",").split(",")] if found else []
        return {name: quantity(value) for name, _, value in pairs}

    limited = amounts("limited")
    return any(value > limited.get(name, value) for name, value in amounts("requested").items())


def _unschedulable(message: str) -> Diagnosis:
    lacking = [name for key, name in _RESOURCES.items() if re.search(rf"Insufficient {re.escape(key)}\b", message)]
    if "taint" in message and not lacking:
        lacking.append("a node whose taints it tolerates")
    elif ("selector" in message or "affinity" in message) and not lacking:
        lacking.append("a node with the labels it selects")
    if "persistentvolumeclaim" in message.lower():
        lacking.append("its volume claim")
    what = f"; lacking: {' and '.join(lacking)}" if lacking else ""
    return Diagnosis(
        Reason.UNSCHEDULABLE,
        f"no node can take it{what} ({_short(message)})",
        "Ask for less in the profile, free the cluster, or add nodes.",
    )


def _short(text: str, limit: int = 300) -> str:
    words = " ".join(text.split())
    return words if len(words) <= limit else words[: limit - 1] + "…"


def _quantity(value: Any) -> str:
    text = str(value)
    return f"{int(text) / 2**20:.0f} MiB" if text.isdigit() else text


def _image(pod: Json) -> str:
    return str(PodStatus(pod).spec.get("image") or "?")


def _event(events: Sequence[Json], reason: str) -> str | None:
    """Message of the newest event of this reason."""
    found = [event for event in events if event.get("reason") == reason]
    return _short(str(found[-1].get("message") or "")) if found else None
