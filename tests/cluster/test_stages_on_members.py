"""Stages on Spark and Dask, executors as pods: the same files as in process."""

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superworkflow.infra.base.errors import StageFailed
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.config.profile import Placement
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.engines import engine as found
from superworkflow.infra.launch.base import Event, StageCall
from superworkflow.infra.launch.kubernetes.launcher import KubernetesLauncher
from superworkflow.infra.launch.local.launcher import ProcessLauncher
from superworkflow.infra.process.exit_status import Reason
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.generators.mag import generate_mag
from tests.cluster.conftest import Cluster, Settings, open_to_pods
from tests.cluster.spark import placement, running
from tests.infra.launch.kubernetes.pod_security import violations
from tests.spark import needs_spark

ENGINES = pytest.mark.parametrize("engine", [pytest.param("spark", marks=needs_spark), "dask"])
Members = Callable[[str], KubernetesSettings]


@pytest.fixture
def members(request: pytest.FixtureRequest, settings: Settings) -> Members:
    """Settings for stages on an engine."""

    def make(engine: str) -> KubernetesSettings:
        made = request.getfixturevalue("spark")() if engine == "spark" else settings()
        return made.model_copy(update={"command": [sys.executable, "-P", "-m", "superworkflow"]})

    return make


def _ignore(event: Event) -> None: ...


@pytest.fixture(scope="module")
def in_process(shared_folder: Path) -> dict[str, Dataset]:
    """Datasets of a small graph that stages make in process, by one thread."""
    edges, store = shared_folder / "spark-edges.csv", shared_folder / "store"
    pairs = np.random.default_rng(1).integers(0, 300, (3000, 2))
    edges.write_text("".join(f"n{u},n{v}\n" for u, v in pairs))
    (shared_folder / "spec.pbtxt").write_text(SPEC)
    made: dict[str, Dataset] = {}
    for stage, params in REAL.items():
        call = _real(stage, params, made, f"{store}/{stage}/{'1' * 32}")
        ProcessLauncher().launch(call, _ignore)
        made[stage] = Dataset.open(call.output)
    open_to_pods(store)
    return made


_DIGITS = {"spark": "24", "dask": "56"}
"""Of the datasets' digests."""
REAL: dict[str, dict[str, Any]] = {
    "index": {}, "walk": {"num_walks": 30, "walk_length": 40, "p": 0.5, "q": 2.0}, "prepare": {"min_count": 2},
    "heterograph": {},
}  # fmt: skip
_INPUTS: dict[str, dict[str, str]] = {
    "walk": {"graph": "index"}, "prepare": {"graph": "index", "walks": "walk"}, "sample": {"graph": "heterograph"},
    "records": {"graph": "heterograph", "subgraphs": "sample"},
}  # fmt: skip
_FILES = {"index": {"edges": "spark-edges.csv"}, "heterograph": {"edges": "spark-edges.csv"},
          "sample": {"spec": "spec.pbtxt"}}  # fmt: skip
SPEC = """
seed_op { op_name: "seed" node_set_name: "node" }
sampling_ops { op_name: "one" input_op_names: "seed" edge_set_name: "edge" sample_size: 6 strategy: RANDOM_UNIFORM }
sampling_ops { op_name: "two" input_op_names: "one" edge_set_name: "edge" sample_size: 4 strategy: RANDOM_UNIFORM }
"""


def _real(
    stage: str, params: dict[str, Any], made: dict[str, Dataset], output: str, placed: Placement | None = None
) -> StageCall:  # fmt: skip
    folder = output.split("/store/")[0]
    inputs = {name: made[maker].uri for name, maker in _INPUTS.get(stage, {}).items()}
    inputs |= {name: f"{folder}/{file}" for name, file in _FILES.get(stage, {}).items()}
    placed = placed or Placement(resources=Resources(cpu=1))
    kind = found(placed.engine).image or "cpu"
    return StageCall(stage, stage, params, inputs, output, placed, {"flow-run": "tests"}, kind)


@ENGINES
def test_the_same_files_as_in_process(
    engine: str, members: Members, in_process: dict[str, Dataset], shared_folder: Path
) -> None:
    """The files of `index`; `prepare` takes the same path, and others are tested below."""
    output = f"{shared_folder}/store/index/{_DIGITS[engine][0] * 32}"
    call = _real("index", REAL["index"], in_process, output, placement(memory="1Gi", engine=engine))
    events = list[Event]()
    launched = KubernetesLauncher(members(engine)).launch(call, events.append)
    there = Dataset.open(output)
    there.verify()
    assert there.manifest.engine == engine
    assert there.manifest.files == in_process["index"].manifest.files  # names, sizes, SHA-256
    assert there.manifest.stats == in_process["index"].manifest.stats
    assert [event["done"] for event in events if event["event"] == "progress"]
    figures = launched.figures
    assert (figures["executors"], figures["executors_lost"]) == (2, 0)
    assert figures["executor_cpu_s"] > 1
    assert 100 << 20 < figures["executor_peak_memory_bytes"] <= 1 << 30
    assert figures["executor_held_s"] > 1
    held = launched.attempts[0].resources
    assert held.memory + sum(group.count * group.memory for group in held.groups.values()) == 3 << 30
    said = " ".join(event.get("message", "") for event in events)
    assert "orbidden" not in said  # the shipped rights are enough
    assert "ERROR" not in said


@pytest.mark.slow
@ENGINES
def test_from_tables_to_records(engine: str, members: Members, shared_folder: Path) -> None:
    """Each stage on the engine reads what the earlier ones made in process."""
    tables, store, made = shared_folder / f"mag-{engine}", shared_folder / "store", dict[str, Dataset]()
    generate_mag(0.001, tables)
    given = {"heterograph": {"graph": str(tables)}, "sample": {"spec": str(tables / "spec.pbtxt")}, "records": {}}
    for stage, files in given.items():
        there = f"{store}/{stage}/{_DIGITS[engine][0] * 32}"
        call = replace(_real(stage, {}, made, there, placement(memory="1Gi", engine=engine)), inputs={
            **{name: made[maker].uri for name, maker in _INPUTS.get(stage, {}).items()}, **files
        })  # fmt: skip
        here = replace(call, output=f"{there[:-1]}1", placement=Placement(resources=Resources(cpu=1)))
        ProcessLauncher().launch(here, _ignore)
        open_to_pods(store)
        KubernetesLauncher(members(engine)).launch(call, _ignore)
        made[stage] = Dataset.open(here.output)
        assert Dataset.open(there).manifest.files == made[stage].manifest.files


@pytest.mark.slow
@ENGINES
@pytest.mark.parametrize(
    ("stage", "params"),
    [
        ("walk", {"num_walks": 6_000, "walk_length": 40, "p": 0.5, "q": 2.0}),
        ("sample", {"spark_mode": "partitioned", "repeats": 100}),
    ],
)
def test_files_survive_the_loss_of_an_executor(
    stage: str, params: dict[str, Any], engine: str, members: Members, in_process: dict[str, Dataset],
    shared_folder: Path, cluster: Cluster,
) -> None:  # fmt: skip
    folder = f"{shared_folder}/store/{stage}"
    here = _real(stage, params, in_process, f"{folder}/{'3' * 32}")
    there = _real(
        stage, params, in_process, f"{folder}/{_DIGITS[engine][1] * 32}", placement(memory="1Gi", engine=engine)
    )
    ProcessLauncher().launch(here, _ignore)
    open_to_pods(folder)
    shards = len(_shards(Path(here.output)))
    launched: list[Any] = []
    thread = threading.Thread(
        target=lambda: launched.append(KubernetesLauncher(members(engine)).launch(there, _ignore))
    )
    thread.start()
    executors = running(cluster, 2)
    # Spark makes its own of our template; folders of the node are what these tests have instead of images.
    assert [each for pod in executors for each in violations(pod["spec"]) if not each.endswith(": hostPath")] == []
    first = executors[0]["metadata"]["name"]
    while not _shards(Path(there.output)) and thread.is_alive():
        time.sleep(0.1)
    cluster.do(lambda api: api.delete(f"{api.pods}/{first}", gracePeriodSeconds="0"))
    written = len(_shards(Path(there.output)))
    thread.join()
    assert 0 < written < shards
    one, other = (Dataset.open(call.output).manifest for call in (here, there))
    assert other.files == one.files
    assert launched[0].figures["executors_lost"] == 1


def _shards(output: Path) -> list[Path]:
    return [*output.glob("walks-*.npy"), *output.glob("subgraphs-*.parquet")]


@pytest.mark.slow
def test_dask_with_too_little_memory_then_with_none_that_fits(
    members: Members, in_process: dict[str, Dataset], shared_folder: Path
) -> None:
    """Workers that run out of memory get more; those that no node can take end the stage with the reason."""
    call = _real("prepare", REAL["prepare"], in_process, f"{shared_folder}/store/prepare/{'7' * 32}")
    call = replace(call, placement=placement(memory="64Mi", engine="dask"))
    launched = KubernetesLauncher(members("dask")).launch(call, _ignore)
    assert launched.attempts[0].reason is Reason.OUT_OF_MEMORY
    assert Dataset.open(call.output).manifest.files == in_process["prepare"].manifest.files
    call = replace(call, output=call.output[:-32] + "8" * 32, placement=placement(memory="9Ti", engine="dask"))
    impatient = members("dask").model_copy(update={"schedule_patience_s": 1})
    with pytest.raises(StageFailed, match=r"Dask worker: no node can take it; lacking: memory .*waited for 1 s"):
        KubernetesLauncher(impatient).launch(call, _ignore)
