"""Why a Job ended, from status objects as the API gives them."""

from typing import Any

import pytest

from superworkflow.infra.launch.kubernetes.diagnosis import diagnose, waiting_problem
from superworkflow.infra.process.exit_status import Reason

Json = dict[str, Any]


def _pod(state: Json | None = None, **status: Any) -> Json:
    limits = {"limits": {"memory": str(64 << 20)}}
    status["containerStatuses"] = [{"name": "stage", "state": state or {}}] if state else []
    return {"spec": {"containers": [{"name": "stage", "image": "registry/cpu:1", "resources": limits}]},
            "status": status}  # fmt: skip


def _ended(code: int, reason: str = "Error", message: str = "") -> Json:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def _job(reason: str | None = None, kind: str = "Failed") -> Json:
    conditions = [{"type": kind, "status": "True", "reason": reason, "message": "Job has failed"}] if reason else []
    return {"spec": {"activeDeadlineSeconds": 30}, "status": {"conditions": conditions}}


def _condition(kind: str, reason: str, message: str = "", status: str = "True") -> list[Json]:
    return [{"type": kind, "status": status, "reason": reason, "message": message}]


CHILD = '@superworkflow {"event": "error", "stage": "walk", "message": "a worker died", "out_of_memory_kills": 1}\n'
SAID = '@superworkflow {"event": "error", "stage": "walk", "message": "walk.p: must be positive.", "user": true}\n'
ENDS = {
    "oom": (_job("BackoffLimitExceeded"), _pod(_ended(137, "OOMKilled")), Reason.OUT_OF_MEMORY, "limit was 64 MiB"),
    "oom-seen-before-the-job": (_job(), _pod(_ended(137, "OOMKilled")), Reason.OUT_OF_MEMORY, "out of memory"),
    "deadline": (_job("DeadlineExceeded"), _pod({"running": {}}), Reason.DEADLINE, "deadline of 30 s"),
    "deadline-of-the-pod": (_job(), _pod(reason="DeadlineExceeded"), Reason.DEADLINE, "deadline"),
    "deadline-without-pod": (_job("DeadlineExceeded"), None, Reason.DEADLINE, "deadline of 30 s"),
    "deadline-after-sigterm": (_job("DeadlineExceeded"), _pod(_ended(143)), Reason.DEADLINE, "deadline"),
    "exit": (_job("BackoffLimitExceeded"), _pod(_ended(1)), Reason.FAILED, "exit status 1"),
    "own-words": (_job("BackoffLimitExceeded"), _pod(_ended(2, message=SAID)), Reason.FAILED, "must be positive"),
    "segfault": (_job(), _pod(_ended(139)), Reason.CRASHED, "SIGSEGV"),
    "killed": (_job(), _pod(_ended(137)), Reason.KILLED, "reports no lack of memory"),
    "child-out-of-memory": (_job(), _pod(_ended(1, message=CHILD)), Reason.OUT_OF_MEMORY, "its limit was"),
    "no-command": (_job(), _pod(_ended(127, "ContainerCannotRun", "no such file")), Reason.NOT_STARTED, "no such file"),
    "start-error": (_job(), _pod(_ended(128, "StartError", "exec failed")), Reason.NOT_STARTED, "exec failed"),
    "evicted": (_job("BackoffLimitExceeded"), _pod(phase="Failed", reason="Evicted",
                message="The node was low on resource: memory."), Reason.EVICTED, "low on resource: memory"),
    "disk": (_job(), _pod(reason="Evicted", message="Pod ephemeral local storage usage exceeds the total limit"),
             Reason.EVICTED, "ephemeral"),
    "preempted": (_job(), _pod(_ended(143), conditions=_condition("DisruptionTarget", "PreemptionByScheduler",
                  "a pod of higher priority")), Reason.EVICTED, "higher priority"),
    "tainted": (_job(), _pod(conditions=_condition("DisruptionTarget", "DeletionByTaintManager")),
                Reason.NODE_LOST, "DeletionByTaintManager"),
    "node-lost": (_job(), _pod(reason="NodeLost", message="Node n1 is unresponsive"), Reason.NODE_LOST, "n1"),
    "no-word": (_job(), _pod(phase="Unknown"), Reason.NODE_LOST, "no heartbeat"),
    "not-admitted": (_job(), _pod(phase="Failed", reason="OutOfmemory"), Reason.UNSCHEDULABLE, "memory"),
    "job-deleted": (None, _pod({"running": {}}), Reason.DELETED, "Job was deleted"),
    "job-deleted-sigterm": (None, _pod(_ended(143)), Reason.DELETED, "Job was deleted"),
    "job-deleted-before-its-pod": (None, None, Reason.DELETED, "Job was deleted"),
    "failed-then-cleaned": (None, _pod(_ended(2, message=SAID)), Reason.FAILED, "must be positive"),
    "pod-deleted": (_job("BackoffLimitExceeded"), {"metadata": {"deletionTimestamp": "now"}, **_pod(_ended(143))},
                    Reason.EVICTED, "its pod was deleted"),
    "pod-gone": (_job("BackoffLimitExceeded"), None, Reason.EVICTED, "pod was deleted"),
}  # fmt: skip


@pytest.mark.parametrize(("job", "pod", "reason", "words"), ENDS.values(), ids=ENDS.keys())
def test_ends(job: Json | None, pod: Json | None, reason: Reason, words: str) -> None:
    found = diagnose(job, pod)
    assert found is not None
    assert found.reason is reason
    assert words in found.summary
    assert found.resolution.endswith(".")


@pytest.mark.parametrize(
    ("job", "pod"),
    [
        (_job(), None),
        (_job(), _pod({"waiting": {"reason": "ContainerCreating"}}, phase="Pending")),
        (_job(), _pod({"running": {}}, phase="Running")),
        (_job(), _pod(_ended(0, "Completed"), phase="Succeeded")),
        (_job("done", "Complete"), _pod(_ended(0, "Completed"))),
        ({"status": {}}, {}),
    ],
)
def test_no_failure(job: Json, pod: Json | None) -> None:
    assert diagnose(job, pod) is None


def test_what_to_do_about_a_full_disk_is_not_what_to_do_about_memory() -> None:
    disk, memory = (diagnose(*ENDS[name][:2]) for name in ("disk", "evicted"))
    assert disk is not None
    assert memory is not None
    assert "ephemeral_storage" in disk.resolution
    assert "ephemeral_storage" not in memory.resolution


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("0/1 nodes are available: 1 Insufficient cpu.", "lacking: CPU ("),
        ("0/3 nodes are available: 1 Insufficient memory, 2 Insufficient nvidia.com/gpu.", "lacking: memory and GPUs"),
        ("0/1 nodes are available: 1 Insufficient ephemeral-storage.", "lacking: ephemeral storage"),
        ("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.", "labels it selects"),
        ("0/2 nodes are available: 2 node(s) had taint {gpu: true}, that the pod didn't tolerate.", "taints"),
        ('persistentvolumeclaim "data" not found', "its volume claim"),
    ],
)
def test_unschedulable_says_what_lacks(message: str, words: str) -> None:
    pod = _pod(phase="Pending", conditions=_condition("PodScheduled", "Unschedulable", message, "False"))
    found = waiting_problem(pod)
    assert found is not None
    assert found.reason is Reason.UNSCHEDULABLE
    assert words in found.summary
    assert message in found.summary


@pytest.mark.parametrize(
    ("waiting", "reason", "words"),
    [
        ({"reason": "ImagePullBackOff", "message": "Back-off pulling"}, Reason.IMAGE_MISSING, "registry/cpu:1"),
        ({"reason": "ErrImagePull", "message": "not found"}, Reason.IMAGE_MISSING, "not found"),
        ({"reason": "InvalidImageName"}, Reason.IMAGE_MISSING, "InvalidImageName"),
        ({"reason": "CreateContainerConfigError", "message": 'secret "s3" not found'}, Reason.NOT_STARTED, '"s3"'),
    ],
)
def test_container_that_waits(waiting: Json, reason: Reason, words: str) -> None:
    found = waiting_problem(_pod({"waiting": waiting}, phase="Pending"))
    assert found is not None
    assert found.reason is reason
    assert words in found.summary


def test_events_tell_more() -> None:
    pull = [{"reason": "Failed", "message": "Failed to pull image: denied"}]
    found = waiting_problem(_pod({"waiting": {"reason": "ImagePullBackOff"}}), pull)
    assert found is not None
    assert "denied" in found.summary
    mount = [{"reason": "FailedMount", "message": "hostPath type check failed"}]
    found = waiting_problem(_pod({"waiting": {"reason": "ContainerCreating"}}), mount)
    assert found is not None
    assert "hostPath" in found.summary
    assert waiting_problem(_pod({"running": {}}), mount) is None


def test_a_node_that_cannot_make_pods() -> None:
    refused = {"reason": "FailedCreatePodSandBox", "message": "failed to get sandbox image"}
    found = waiting_problem(_pod({"waiting": {"reason": "ContainerCreating"}}), [{"reason": "Scheduled"}, refused])
    assert found is not None
    assert (found.reason, "failed to get sandbox image" in found.summary) == (Reason.NOT_STARTED, True)
    assert waiting_problem(_pod({"waiting": {"reason": "ContainerCreating"}}), [refused, {"reason": "Pulling"}]) is None
    assert waiting_problem(_pod({"running": {}}), [refused]) is None


QUOTA = 'pods "a" is forbidden: exceeded quota: q, requested: {}, used: {}, limited: {}'


@pytest.mark.parametrize(
    ("message", "reason", "words"),
    [
        (QUOTA.format("limits.cpu=2,pods=1", "limits.cpu=3,pods=8", "limits.cpu=4"), Reason.UNSCHEDULABLE, "use"),
        (QUOTA.format("cpu=1,limits.memory=8Gi", "limits.memory=0", "limits.memory=4Gi"), Reason.REFUSED, "refuses"),
        ("exceeded quota: q", Reason.UNSCHEDULABLE, "in use"),
        ('pods "a" is forbidden: failed quota: q: must specify limits.cpu', Reason.REFUSED, "requires a CPU limit"),
        ("maximum cpu usage per Container is 2, but limit is 4", Reason.REFUSED, "refuses"),
    ],
)  # fmt: skip
def test_a_quota_in_use_is_waited_for(message: str, reason: Reason, words: str) -> None:
    found = waiting_problem(None, [{"reason": "FailedCreate", "message": message}])
    assert found is not None
    assert found.reason is reason
    assert words in found.summary


def test_which_ends_are_disruptions() -> None:
    """The others would be the same in a new Job, or are what somebody wants."""
    disrupted = {name for name, (job, pod, *_) in ENDS.items() if (found := diagnose(job, pod)) and found.disrupted}
    assert disrupted == {
        "evicted", "preempted", "tainted", "node-lost", "no-word", "not-admitted", "pod-deleted", "pod-gone",
    }  # fmt: skip


@pytest.mark.parametrize("pod", [None, {}, _pod({"waiting": {"reason": "ContainerCreating"}}), _pod({"running": {}})])
def test_nothing_is_wrong_yet(pod: Json | None) -> None:
    assert waiting_problem(pod) is None


def test_own_words_are_the_last_ones() -> None:
    text = "line\n" + SAID.replace("positive", "first") + SAID + "more\n"
    found = diagnose(_job(), _pod(_ended(2, message=text)))
    assert found is not None
    assert found.summary == "walk.p: must be positive"
    found = diagnose(_job(), _pod(_ended(2, message="Traceback\n@superworkflow {broken\n")))
    assert found is not None
    assert "exit status 2" in found.summary
