"""Ended Jobs that nothing needs, and Secrets that lost theirs: found and removed, all others left."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.job_manifest import MANAGED_BY
from superworkflow.infra.launch.kubernetes.job_pruning import OldObjects, old_objects, remove_objects
from tests.cluster.conftest import Cluster, Pods
from tests.launcher_cases import calling, complete, ignore, until


def test_ended_jobs_and_lost_secrets(ground: Pods, gate: Path, cluster: Cluster) -> None:
    """One Job has ended and nothing needs it, the dataset of another is kept, a third runs."""
    kept = uuid.uuid4().hex
    ended, needed = (replace(ground.call(), digest=digest) for digest in (uuid.uuid4().hex, kept))
    for call in (ended, needed):
        ground.launcher().launch(call, ignore)
    jobs = {job["metadata"]["labels"]["superworkflow/digest"]: job["metadata"] for job in cluster.jobs()}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": jobs[kept]["name"], "uid": jobs[kept]["uid"]}

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
        return cluster.do(lambda api: old_objects(api, datetime.now(UTC) - age, {kept}))

    cluster.do(create)
    with calling(ground.caller(ground.call(gate))):
        assert look(timedelta(hours=1)) == OldObjects()
        found = look(-timedelta(minutes=1))
        assert [job.name for job in found.jobs] == [jobs[ended.digest]["name"]]
        assert found.secrets == ("lost",)
        for _ in range(2):  # again, as after a pruning that was killed
            cluster.do(lambda api: remove_objects(api, found))
        until(lambda: len(cluster.jobs()) == 2)
        assert cluster.do(names) == {"of-another", "owned"}
        assert look(-timedelta(minutes=1)) == OldObjects()
    gate.touch()
    assert complete(needed)
