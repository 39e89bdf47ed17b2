"""The stages of Node2Vec on Spark, executors as pods: the same files as in process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superworkflow.infra.kubernetes.launcher import KubernetesLauncher
from superworkflow.infra.launch.base import Event, StageCall
from superworkflow.infra.launch.process import ProcessLauncher
from superworkflow.infra.profile import Placement
from superworkflow.infra.resources import Resources
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.filesystem import Location
from tests.cluster.conftest import Cluster, Settings
from tests.cluster.spark import placement, running
from tests.infra.kubernetes.pod_security import violations
from tests.spark import needs_spark

pytestmark = needs_spark


def _ignore(event: Event) -> None: ...


@pytest.fixture(scope="module")
def in_process(shared_folder: Path) -> dict[str, Dataset]:
    """Index, walks and vocabulary of a small graph, made in process by one thread and by two processes of them."""
    edges, store = shared_folder / "spark-edges.csv", shared_folder / "store"
    pairs = np.random.default_rng(1).integers(0, 300, (3000, 2))
    edges.write_text("".join(f"n{u},n{v}\n" for u, v in pairs))
    made: dict[str, Dataset] = {}
    for stage, params in REAL.items():
        call = _real(stage, params, made, str(edges), f"{store}/{stage}/{'1' * 32}")
        ProcessLauncher().launch(call, _ignore)
        made[stage] = Dataset.open(Location.of(call.output))
    subprocess.run(["chmod", "-R", "a+rwX", store], check=True)
    return made


REAL: dict[str, dict[str, Any]] = {
    "index": {}, "walk": {"num_walks": 30, "walk_length": 40, "p": 0.5, "q": 2.0}, "prepare": {"min_count": 2},
}  # fmt: skip
_INPUTS = {"index": {}, "walk": {"graph": "index"}, "prepare": {"graph": "index", "walks": "walk"}}


def _real(
    stage: str,
    params: dict[str, Any],
    made: dict[str, Dataset],
    edges: str,
    output: str,
    placed: Placement | None = None,
) -> StageCall:
    inputs = {"edges": edges} if stage == "index" else {name: made[of].uri for name, of in _INPUTS[stage].items()}
    placed = placed or Placement(resources=Resources(cpu=1))
    return StageCall(stage, stage, params, inputs, output, placed, {"flow-run": "tests"}, "spark")


@pytest.mark.parametrize("stage", ["index", "walk"])  # prepare goes the same way
def test_the_same_files_as_in_process(
    stage: str, spark: Settings, in_process: dict[str, Dataset], shared_folder: Path
) -> None:
    edges, output = f"{shared_folder}/spark-edges.csv", f"{shared_folder}/store/{stage}/{'2' * 32}"
    call = _real(stage, REAL[stage], in_process, edges, output, placement(memory="1Gi"))
    events = list[Event]()
    launcher = KubernetesLauncher(spark(command=[sys.executable, "-P", "-m", "superworkflow"]))
    launched = launcher.launch(call, events.append)
    there = Dataset.open(Location.of(output))
    there.verify()
    assert there.manifest.engine == "spark"
    assert there.manifest.files == in_process[stage].manifest.files  # names, sizes, SHA-256
    assert there.manifest.stats == in_process[stage].manifest.stats
    assert [event["done"] for event in events if event["event"] == "progress"]
    figures = launched.figures
    assert (figures["executors"], figures["executors_lost"]) == (2, 0)
    assert figures["executor_cpu_s"] > 1
    assert 100 << 20 < figures["executor_peak_memory_bytes"] <= 1 << 30
    assert figures["executor_held_s"] > 2
    assert launched.attempts[0].resources.total_memory == 3 << 30
    said = " ".join(event.get("message", "") for event in events)
    assert "orbidden" not in said  # the shipped rights are enough
    assert "ERROR" not in said


def test_walks_survive_the_loss_of_an_executor(
    spark: Settings, in_process: dict[str, Dataset], shared_folder: Path, cluster: Cluster
) -> None:
    params = {"num_walks": 6_000, "walk_length": 40, "p": 0.5, "q": 2.0}
    edges, folder = f"{shared_folder}/spark-edges.csv", f"{shared_folder}/store/walk"
    here = _real("walk", params, in_process, edges, f"{folder}/{'3' * 32}")
    there = _real("walk", params, in_process, edges, f"{folder}/{'4' * 32}", placement(memory="1Gi"))
    ProcessLauncher().launch(here, _ignore)
    shards = len(Dataset.open(Location.of(here.output)).manifest.files)
    launched: list[Any] = []
    thread = threading.Thread(target=lambda: launched.append(KubernetesLauncher(spark()).launch(there, _ignore)))
    thread.start()
    executors = running(cluster, 2)
    # As Spark made them of our template; folders of the node are what these tests have instead of images.
    assert [each for pod in executors for each in violations(pod["spec"]) if not each.endswith(": hostPath")] == []
    first = executors[0]["metadata"]["name"]
    while not list(Path(there.output).glob("walks-*.npy")) and thread.is_alive():
        time.sleep(0.1)
    cluster.do(lambda api: api.delete(f"{api.pods}/{first}", gracePeriodSeconds="0"))
    written = len(list(Path(there.output).glob("walks-*.npy")))
    thread.join()
    assert 0 < written < shards
    one, other = (Dataset.open(Location.of(call.output)).manifest for call in (here, there))
    assert other.files == one.files
    assert launched[0].figures["executors_lost"] == 1
