"""Ended Jobs that nothing needs, and Secrets that lost theirs: found and removed, all others left."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.job_manifest import MANAGED_BY
from superworkflow.infra.launch.kubernetes.job_pruning import OldObjects, old_objects, remove_objects
from tests.cluster.conftest import Cluster, Pods
from tests.launcher_cases import calling, until


def test_ended_jobs_and_lost_secrets(ground: Pods, gate: Path, cluster: Cluster) -> None:
    """Three runs were killed: one Job has ended and nothing needs it, the dataset of another is kept, a third runs."""
    closed = gate.with_name(f"{gate.name}-closed")
    calls = [ground.call(gate), ground.call(gate), ground.call(closed)]
    for call in calls:
        with calling(ground.caller(call)):
            pass
    gate.touch()
    until(lambda: sum(bool((job.get("status") or {}).get("succeeded")) for job in cluster.jobs()) == 2)
    jobs = {job["metadata"]["labels"]["superworkflow/digest"]: job["metadata"] for job in cluster.jobs()}
    gone, kept, runs = (jobs[Path(call.output).name] for call in calls)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": kept["name"], "uid": kept["uid"]}

    async def create(api: KubernetesApi) -> None:
        secrets: list[tuple[str, Json, list[Json]]] = [
            ("lost", MANAGED_BY, []), ("of-another", {}, []), ("owned", MANAGED_BY, [owner]),
        ]  # fmt: skip
        for name, labels, owners in secrets:
            metadata = {"name": name, "labels": labels, "ownerReferences": owners}
            await api.create(api.secrets, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata})

    async def names(api: KubernetesApi) -> set[str]:
        return {each["metadata"]["name"] for each in await api.items(api.secrets)} & {"lost", "of-another", "owned"}

    def look(age: timedelta) -> OldObjects:
        digests = {kept["labels"]["superworkflow/digest"]}
        return cluster.do(lambda api: old_objects(api, datetime.now(UTC) - age, digests))

    cluster.do(create)
    assert look(timedelta(hours=1)) == OldObjects()
    found = look(-timedelta(minutes=1))
    assert [job.name for job in found.jobs] == [gone["name"]]
    assert found.secrets == ("lost",)
    for _ in range(2):  # again, as after a pruning that was killed
        cluster.do(lambda api: remove_objects(api, found))
    assert {job["metadata"]["name"] for job in cluster.jobs()} == {kept["name"], runs["name"]}
    until(lambda: cluster.do(names) == {"of-another", "owned"})  # the garbage collector ends a deletion
    assert look(-timedelta(minutes=1)) == OldObjects()
    closed.touch()
    for job in cluster.jobs():
        cluster.delete_job(job["metadata"]["name"])
    cluster.do(lambda api: api.delete(f"{api.secrets}/of-another"))
    until(lambda: not cluster.pods() and not cluster.do(names))
