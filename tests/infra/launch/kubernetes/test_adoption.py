"""A launcher's use of datasets that other runs' Jobs have made, without a cluster."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.base.errors import StageFailed
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.config.profile import Placement
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.base import Event, Launched, StageCall
from superworkflow.infra.launch.kubernetes import launcher
from superworkflow.infra.launch.kubernetes.api import Json, KubernetesApi
from superworkflow.infra.launch.kubernetes.job_follower import Ended
from superworkflow.infra.launch.kubernetes.job_manifest import job_manifest
from superworkflow.infra.launch.kubernetes.ownership import LAUNCHER
from superworkflow.infra.launch.memory_history import Sizing
from superworkflow.infra.process.exit_status import Diagnosis, Reason
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.manifest import Measurement

MIB = 1 << 20
PEAK = 300 * MIB
WELL = Ended(None, {"event": "done", "reused": False}, 1.0, exit_code=0)
FOUND = Ended(None, {"event": "done", "reused": True}, 1.0, exit_code=0)
TOO_SMALL = Ended(Diagnosis(Reason.OUT_OF_MEMORY, "it ran out of memory", ""), None, 1.0, exit_code=137)


class Cluster:
    """Jobs, each with a given end; in the order in which they are made or found."""

    jobs, pods, namespace = "/jobs", "/pods", "graphs"

    def __init__(self) -> None:
        self.there: dict[str, Json] = {}
        self.made: list[Json] = []
        self.ends: list[Callable[[], Ended]] = []

    async def get(self, path: str, **query: str) -> Json | None:
        return self.there.get(path.removeprefix("/jobs/"))

    async def items(self, path: str, **query: str) -> list[Json]:
        return list(self.there.values()) if path == self.jobs else []

    async def create(self, path: str, body: Json, **query: str) -> Json:
        body["metadata"] |= {"uid": f"01234567-89ab-cdef-0123-{len(self.made):012}", "resourceVersion": "1"}
        self.made.append(body)
        self.there[body["metadata"]["name"]] = body
        return body

    async def change(self, path: str, operations: list[Json]) -> bool:
        return True

    async def delete(self, path: str, **query: str) -> bool:
        self.there.pop(path.removeprefix("/jobs/"), None)
        return True

    async def lines(self, path: str, **query: str) -> AsyncIterator[str]:
        await asyncio.sleep(3600)
        yield ""

    async def close(self) -> None: ...


class Ground:
    """A store, the log, and what a launcher sees when it looks for the dataset: once each, then what is there."""

    def __init__(self, folder: Path, cluster: Cluster):
        self.cluster, self.log, self.looks = cluster, list[str](), list[Dataset | None]()
        self.location = Location.of(folder / "scale" / ("d" * 32))
        self.settings = KubernetesSettings.model_validate(
            {"images": {"cpu": "image"}, "volumes": [{"mount_path": str(folder), "host_path": str(folder)}]}
        )
        placement = Placement(resources=Resources(memory=256 * MIB))
        self.call = StageCall("scale", "scale", {}, {}, self.location.uri, placement, expected_memory=MIB)
        self.sizing = Sizing(self.call.place.store)

    def write(self) -> Dataset:
        measured = Measurement(runtime_s=1, cpu_s=1, peak_memory_bytes=PEAK, rows=0, bytes=0, container_cpu_s=1,
                               container_peak_memory_bytes=PEAK)  # fmt: skip
        writer = DatasetWriter(self.location)
        return writer.commit(stage="scale", version="1", params={}, inputs={}, stats={}, measured=measured, software={})

    def well(self) -> Ended:
        self.write()
        return WELL

    def look(self) -> Dataset | None:
        return self.looks.pop(0) if self.looks else Dataset.find(self.location)

    def job_of_another(self, memory: int) -> None:
        """Another run's Job is making the dataset."""
        job = job_manifest(self.call, self.settings, Resources(memory=memory), launcher="other", attempt=1, owner=None)
        job["metadata"]["labels"][LAUNCHER] = "other"
        self.cluster.there["other"] = job | {"metadata": job["metadata"] | {"name": "other", "uid": "u"}}

    def launch(self) -> Launched:
        def on_event(event: Event) -> None:
            self.log.append(str(event.get("message")))

        return launcher.KubernetesLauncher(self.settings).launch(self.call, on_event)


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    cluster = Cluster()
    made = Ground(tmp_path, cluster)

    async def connect(settings: KubernetesSettings) -> Cluster:
        return cluster

    class Follower:
        def __init__(self, api: Any, settings: Any, name: str, *rest: Any, **more: Any):
            self.name, self.wake = name, asyncio.Event()

        async def follow(self) -> Ended:
            ended = cluster.ends.pop(0)()
            if self.name in cluster.there:
                cluster.there[self.name]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
            return ended

        def held_s(self) -> float:
            return 1.0

        def members_held(self) -> tuple[()]:
            return ()

    monkeypatch.setattr(KubernetesApi, "connect", connect)
    monkeypatch.setattr(launcher, "JobFollower", Follower)
    monkeypatch.setattr(launcher, "GUEST_SECONDS", 0.01)
    monkeypatch.setattr(launcher, "_complete", lambda call: made.look())
    yield made
    assert not cluster.ends


def test_a_dataset_that_vanishes_between_two_looks_is_made(ground: Ground) -> None:
    """Another run's Job had ended when this one looked for it, and somebody removed what it had made."""
    ground.looks = [ground.write(), None, None]
    ground.location.delete(recursive=True)
    ground.cluster.ends = [ground.well]
    launched = ground.launch()
    assert not launched.reused
    assert len(ground.cluster.made) == len(launched.attempts) == 1
    assert any("has disappeared; recomputing it" in line for line in ground.log)


def test_a_dataset_that_vanishes_after_the_job_that_was_followed_is_made(ground: Ground) -> None:
    ground.job_of_another(512 * MIB)

    ground.cluster.ends = [lambda: WELL, ground.well]
    assert not ground.launch().reused
    assert len(ground.cluster.made) == 1


def test_datasets_that_vanish_time_and_again_end_the_stage(ground: Ground) -> None:
    gone = ground.write()
    ground.location.delete(recursive=True)
    ground.looks = [gone, None] * 2
    with pytest.raises(StageFailed, match=r"missing both times\..* what removes datasets from"):
        ground.launch()
    assert ground.cluster.made == []


def test_a_job_that_leaves_no_dataset_is_not_repeated(ground: Ground) -> None:
    ground.cluster.ends = [lambda: WELL]
    with pytest.raises(StageFailed, match="left no dataset"):
        ground.launch()
    assert len(ground.cluster.made) == 1


@pytest.mark.parametrize("how", ["found at once", "found by its own Job"])
def test_what_another_job_used_is_not_held_against_what_this_one_asked_for(ground: Ground, how: str) -> None:
    """This run's Job ran out of memory; then another one's, of whose memory nothing is known, made the dataset."""

    def too_small() -> Ended:
        ground.write()
        return TOO_SMALL

    if how == "found at once":
        ground.looks = [None, None]
        ground.cluster.ends = [too_small]
    else:
        ground.looks = [None, None, None]
        ground.cluster.ends = [too_small, lambda: FOUND]
    launched = ground.launch()
    assert launched.reused
    assert {"used_memory_share", "used_cpu_share"}.isdisjoint(launched.figures)
    assert ground.sizing.memory("scale", MIB) == 0


def test_what_the_followed_job_held_is_remembered(ground: Ground) -> None:
    """Its own resources are known, and what was measured is of it."""

    def too_small() -> Ended:
        ground.job_of_another(512 * MIB)
        return TOO_SMALL

    ground.cluster.ends = [too_small, ground.well]
    launched = ground.launch()
    assert launched.reused
    assert launched.figures["used_memory_share"] == pytest.approx(300 / 512)
    assert ground.sizing.memory("scale", MIB) == 512 * MIB
