"""Jobs that are Spark drivers: their manifests, and what is made of the pods of their executors."""

import asyncio
import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

import superworkflow.infra
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.config.profile import Placement
from superworkflow.infra.contract.resources import Executors, Resources
from superworkflow.infra.launch.base import StageCall
from superworkflow.infra.launch.kubernetes.engines.spark import ExecutorPods
from superworkflow.infra.launch.kubernetes.engines.spark_driver import LEAST_HEAP, POD_VERBS, memory_split
from superworkflow.infra.launch.kubernetes.job_manifest import job_manifest
from superworkflow.infra.launch.kubernetes.kept_pods import RIGHTS as FOR_GROUPS
from superworkflow.infra.launch.kubernetes.pod_group import MEMBER_OF, ROLE, FollowedJob
from superworkflow.infra.launch.kubernetes.preflight import RIGHTS, lacks_group
from superworkflow.infra.process.exit_status import Diagnosis, Reason

MIB = 1 << 20
SETTINGS = KubernetesSettings.model_validate(
    {
        "service_account": "stages", "spark_service_account": "drivers", "images": {"spark": "r/spark:1"},
        "image_pull_secrets": ["registry"], "env": {"AWS_ENDPOINT_URL": "http://s3"}, "env_secrets": ["s3"],
        "volumes": [{"mount_path": "/data", "host_path": "/srv"}], "node_selector": {"pool": "graphs"},
        "tolerations": [{"key": "graphs", "effect": "NoSchedule"}], "labels": {"team": "a"}, "grace_s": 3,
        "image_pull_policy": "Always", "user": 1234,
    }
)  # fmt: skip
SPARK = Resources.model_validate({"cpu": 1, "memory": "2Gi", "executors": {"count": 3, "cpu": 2.5, "memory": "4Gi"}})


def _manifest(settings: KubernetesSettings = SETTINGS, resources: Resources = SPARK) -> dict[str, Any]:
    call = StageCall(
        "holdout-walk", "walk", {"p": 0.5}, {"graph": "s3://b/index/x"}, "s3://b/walk/0123",
        Placement(engine="spark", resources=resources), {"flow-run": "run 1"}, "spark",
    )  # fmt: skip
    return job_manifest(call, settings, resources, launcher="l1")


def _template(manifest: dict[str, Any]) -> dict[str, Any]:
    annotations = manifest["spec"]["template"]["metadata"]["annotations"]
    template = json.loads(annotations["superworkflow/executor-pod"])
    assert isinstance(template, dict)
    return template


def _conf(manifest: dict[str, Any]) -> dict[str, str]:
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    (entry,) = [entry for entry in container["env"] if entry["name"] == "SUPERWORKFLOW_SPARK_CONF"]
    found = json.loads(entry["value"])
    assert all(isinstance(value, str) for value in found.values())
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
def test_fits_the_schema(version: str) -> None:
    manifest = _manifest()
    kubernetes_validate.validate(manifest, version, strict=True)
    template = _template(manifest)
    template["metadata"]["name"] = "x"
    template["spec"]["containers"][0]["image"] = "filled-in-by-spark:1"
    kubernetes_validate.validate(template, version, strict=True)


def test_only_the_driver_has_an_account_with_rights() -> None:
    manifest = _manifest()
    pod, executor = manifest["spec"]["template"]["spec"], _template(manifest)["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("drivers", True)
    assert (executor["serviceAccountName"], executor["automountServiceAccountToken"]) == ("stages", False)


def test_executors_are_as_the_stages_pods() -> None:
    manifest = _manifest()
    pod, executor = manifest["spec"]["template"]["spec"], _template(manifest)["spec"]
    same = ("securityContext", "nodeSelector", "tolerations", "imagePullSecrets", "terminationGracePeriodSeconds")
    assert {key: executor[key] for key in same} == {key: pod[key] for key in same}
    (mine,), (theirs,) = pod["containers"], executor["containers"]
    assert theirs["securityContext"] == mine["securityContext"]
    assert theirs["securityContext"]["readOnlyRootFilesystem"] is True
    assert theirs["envFrom"] == [{"secretRef": {"name": "s3"}}]
    assert {"name": "AWS_ENDPOINT_URL", "value": "http://s3"} in theirs["env"]
    for library in ("NUMBA", "OMP"):  # a Python process of an executor has one core
        assert {"name": f"{library}_NUM_THREADS", "value": "1"} in theirs["env"]
    assert {"name": "volume-0", "mountPath": "/data", "readOnly": False} in theirs["volumeMounts"]
    assert {"name": "volume-0", "hostPath": {"path": "/srv"}} in executor["volumes"]
    assert {"name": "tmp", "mountPath": "/tmp"} in theirs["volumeMounts"]


def test_labels_by_which_executors_are_found_and_not_taken_for_the_jobs_own() -> None:
    manifest = _manifest()
    labels = _template(manifest)["metadata"]["labels"]
    assert labels == manifest["metadata"]["labels"] | {MEMBER_OF: manifest["metadata"]["name"], ROLE: "executor"}
    assert MEMBER_OF not in manifest["spec"]["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/managed-by"] == "superworkflow"


def test_a_user_of_any_number_has_a_name() -> None:
    for pod in (_manifest()["spec"]["template"], _template(_manifest())):
        assert pod["metadata"]["annotations"]["superworkflow/passwd"].startswith("stage:x:1234:1234:")
        (mount,) = [m for m in pod["spec"]["containers"][0]["volumeMounts"] if m["mountPath"] == "/etc/passwd"]
        assert mount["subPath"] == "passwd"


def test_spark_settings() -> None:
    manifest = _manifest()
    conf = _conf(manifest)
    assert conf["spark.executor.instances"] == "3"
    assert conf["spark.executor.cores"] == "2"
    assert conf["spark.kubernetes.executor.request.cores"] == "2500m"
    assert conf["spark.kubernetes.container.image"] == "r/spark:1"
    assert conf["spark.kubernetes.container.image.pullPolicy"] == "Always"
    assert conf["spark.kubernetes.executor.podNamePrefix"] == manifest["metadata"]["name"]
    memory = [int(conf[f"spark.executor.{name}"].removesuffix("m")) for name in ("memory", "memoryOverhead")]
    assert sum(memory) == 4096
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    names = [entry["name"] for entry in container["env"]]
    for name in ("POD_IP", "POD_NAME", "POD_NAMESPACE"):  # Kubernetes fills in only what stands before
        assert names.index(name) < names.index("SUPERWORKFLOW_SPARK_CONF")
        assert any(f"$({name})" in value for value in conf.values())


def test_elastic_executors_are_allocated_as_tasks_wait() -> None:
    executors = {"count": 3, "max": 30, "cpu": 2.5, "memory": "4Gi"}
    conf = _conf(_manifest(resources=Resources.model_validate({"cpu": 1, "memory": "2Gi", "executors": executors})))
    names = ("enabled", "shuffleTracking.enabled", "minExecutors", "initialExecutors", "maxExecutors")
    assert [conf[f"spark.dynamicAllocation.{name}"] for name in names] == ["true", "true", "3", "3", "30"]
    assert "spark.executor.instances" not in conf
    assert conf["spark.sql.shuffle.partitions"] == "120"
    assert _conf(_manifest())["spark.dynamicAllocation.enabled"] == "false"


def test_as_many_executors_as_there_may_be_must_fit() -> None:
    nodes = [
        {
            "metadata": {"labels": {"pool": "graphs"}},
            "spec": {},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}},
        }
    ]
    fits, more = (Executors(count=1, max=most, cpu=1, memory=1 << 30) for most in (4, 5))
    assert lacks_group(nodes, fits, SETTINGS) is None
    assert "only 4 of 5 fit at once" in str(lacks_group(nodes, more, SETTINGS))


def test_without_executors_spark_runs_in_the_stages_own_pod() -> None:
    pod = _manifest(resources=Resources(cpu=1))["spec"]["template"]
    assert pod["spec"]["serviceAccountName"] == "stages"
    assert "annotations" not in pod["metadata"]
    assert not any(entry["name"] == "SUPERWORKFLOW_SPARK_CONF" for entry in pod["spec"]["containers"][0]["env"])


def test_what_is_missing_is_named() -> None:
    with pytest.raises(UserError, match=r"kubernetes\.spark_service_account.*superworkflow-spark"):
        _manifest(SETTINGS.model_copy(update={"spark_service_account": None}))
    small = SPARK.model_copy(update={"executors": SPARK.executors.model_copy(update={"memory": 600 * MIB})})  # type: ignore[union-attr]
    with pytest.raises(UserError, match=r"too little memory.*600\.0 MiB.*768\.0 MiB or more"):
        _manifest(resources=small)


@pytest.mark.parametrize("memory", [768 * MIB, 1 << 30, (4 << 30) + 12345])
def test_memory_split(memory: int) -> None:
    heap, beside = memory_split(memory)
    assert heap >= LEAST_HEAP
    assert heap % MIB == beside % MIB == 0
    assert memory - MIB < heap + beside <= memory
    assert beside > heap or heap == LEAST_HEAP


def _pod(name: str, state: dict[str, Any], **status: Any) -> dict[str, Any]:
    container = {"name": "stage", "resources": {"limits": {"memory": "832Mi"}}, "image": "r/spark:1"}
    statuses = [{"name": "stage", "state": state}]
    metadata = {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {
        "metadata": metadata,
        "spec": {"containers": [container]},
        "status": {"containerStatuses": statuses, **status},
    }


def _ended(name: str, code: int, *, reason: str = "Error", **report: Any) -> dict[str, Any]:
    times = {"startedAt": "2026-01-01T00:00:04Z", "finishedAt": "2026-01-01T00:00:34Z"}
    return _pod(name, {"terminated": {"exitCode": code, "reason": reason, "message": json.dumps(report), **times}})


class Answers:
    """The API's answers, one list of executors after the other; the last one stays."""

    pods, events = "/pods", "/events"

    def __init__(self, *lists: list[dict[str, Any]]):
        self._lists = list(lists)

    async def items(self, path: str, **query: str) -> list[dict[str, Any]]:
        if path == self.events:
            return []
        return self._lists.pop(0) if len(self._lists) > 1 else self._lists[0]


def _executors(
    *lists: list[dict[str, Any]], **patience: float
) -> tuple[ExecutorPods, list[Diagnosis | None], list[str]]:
    log: list[str] = []
    settings = SETTINGS.model_copy(update=patience)
    group = Executors(count=2, cpu=1, memory=800 * MIB)
    executors = ExecutorPods(FollowedJob(Answers(*lists), settings, "job", log.append), "executor", group)  # type: ignore[arg-type]

    async def looks() -> list[Diagnosis | None]:
        return [await executors.look() for _ in lists]

    return executors, asyncio.run(looks()), log


FAILED = Diagnosis(Reason.FAILED, "the stage failed", "")
UNSCHEDULABLE = {
    "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "1 Insufficient memory.",
}  # fmt: skip


def test_unschedulable_executors_end_patience() -> None:
    pending = _pod("e1", {}, phase="Pending", conditions=[UNSCHEDULABLE])
    _, found, log = _executors([pending], [pending], schedule_patience_s=0)
    assert found[0] is not None
    assert found[0].reason is Reason.UNSCHEDULABLE
    assert "Spark executor: no node can take it; lacking: memory" in found[0].summary
    assert log == [f"waiting: {found[0].summary.partition(', waited')[0]}"]


def test_executors_that_wait_while_others_run_are_no_problem() -> None:
    pending = _pod("e1", {}, phase="Pending", conditions=[UNSCHEDULABLE])
    running = _pod("e2", {"running": {"startedAt": "2026-01-01T00:00:04Z"}})
    _, found, _ = _executors([pending, running], schedule_patience_s=0)
    assert found == [None]


def test_missing_image_of_executors() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    _, found, _ = _executors([_pod("e1", waiting)], start_patience_s=0)
    assert found[0] is not None
    assert found[0].reason is Reason.IMAGE_MISSING


@pytest.mark.parametrize(
    "killed", [_ended("e1", 137, reason="OOMKilled"), _ended("e1", 0, out_of_memory_kills=2)], ids=["java", "python"]
)
def test_out_of_memory(killed: dict[str, Any]) -> None:
    running = _pod("e2", {"running": {"startedAt": "2026-01-01T00:00:04Z"}})
    executors, found, _ = _executors([killed, running])
    assert found == [None]  # Spark may get by with the others
    diagnosis = executors.failure(FAILED)
    assert diagnosis is not None
    assert diagnosis.reason is Reason.OUT_OF_MEMORY
    assert "e1 ran out of memory (its limit was 832 MiB)" in diagnosis.summary
    assert executors.failure(Diagnosis(Reason.DEADLINE, "", "")) is None


def test_as_many_out_of_memory_as_were_asked_for_end_it() -> None:
    killed = [_ended(name, 137, reason="OOMKilled") for name in ("e1", "e2")]
    _, found, _ = _executors([killed[0]], killed)
    assert found[0] is None
    assert found[1] is not None
    assert found[1].reason is Reason.OUT_OF_MEMORY


def test_executors_that_do_not_stay_up_say_why() -> None:
    executors, _, _ = _executors([_ended("e1", 1, error="Exception in thread main: no such file")])
    diagnosis = executors.failure(FAILED)
    assert diagnosis is not None
    assert diagnosis.reason is Reason.NOT_STARTED
    assert "none of 1 Spark executors stayed up; the last one said: Exception in thread main" in diagnosis.summary


@pytest.mark.parametrize(
    "ended", [_ended("e1", 0), _ended("e1", 1, error="ERROR Executor: Driver 10.0.0.1 disassociated! Shutting down.")]
)
def test_executors_that_end_with_their_driver_explain_nothing(ended: dict[str, Any]) -> None:
    executors, _, _ = _executors([ended])
    assert executors.failure(FAILED) is None


def test_figures() -> None:
    one, two = (_ended(name, 0, cpu_s=10.0, peak_memory_bytes=100 * MIB * n) for n, name in ((1, "e1"), (2, "e2")))
    lost = _pod("e3", {"running": {"startedAt": "2026-01-01T00:00:04Z"}})
    late = _ended("e4", 1)  # it was still starting when the driver ended
    for pod, time in ((one, "2100-01-01T00:00:00Z"), (two, "2100-01-01T00:00:01Z"), (late, "2100-01-01T00:00:02Z")):
        pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = time
    executors, _, _ = _executors([lost], [one, two, late])
    figures = executors.figures()
    assert figures.items() >= {
        "executors": 4.0, "executors_lost": 1.0, "executor_cpu_s": 20.0, "executor_start_s": 4.0,
        "executor_peak_memory_bytes": 200.0 * MIB, "executor_used_memory_share": 0.25,
    }.items()  # fmt: skip
    assert figures["executor_held_s"] > 60
    assert _executors([])[0].figures() == {}


def test_each_executor_is_held_from_its_node_to_its_end() -> None:
    """In the cluster's own time, and as large as it was; one that got no node has held nothing."""

    def scheduled(pod: dict[str, Any], second: int) -> dict[str, Any]:
        time = f"2026-01-01T00:00:{second:02d}Z"
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": time}]
        return pod

    one, two = scheduled(_ended("e1", 0), 3), scheduled(_ended("e2", 137, reason="OOMKilled"), 5)
    two["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "500m", "memory": "1Gi"}
    waiting = _pod("e3", {}, phase="Pending", conditions=[UNSCHEDULABLE])
    executors, _, _ = _executors([one, two, waiting])
    own = scheduled(_pod("driver", {}), 1)
    assert [
        (each.begin_s, each.end_s, each.resources.cpu, each.resources.memory) for each in executors.holdings(own)
    ] == [
        (2, 33, 1, 800 * MIB),
        (4, 33, 0.5, 1 << 30),
    ]


def test_the_shipped_rights_are_those_that_check_asks_for() -> None:
    documents = yaml.safe_load_all((Path(superworkflow.infra.__file__).parent / "kubernetes" / "rbac.yaml").read_text())
    roles = {each["metadata"]["name"]: each["rules"] for each in documents if each["kind"] == "Role"}
    assert roles["superworkflow-spark"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": list(POD_VERBS)}]
    given = {(group, resource): set(rule["verbs"]) for rule in roles["superworkflow"] for group in rule["apiGroups"]
             for resource in rule["resources"]}  # fmt: skip
    for group, resource, sub, verbs in RIGHTS:
        assert given[group, f"{resource}/{sub}" if sub else resource] == set(verbs)
    assert roles["superworkflow-worker-groups"] == [
        {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
        for group, resource, _, verbs in FOR_GROUPS
    ]
