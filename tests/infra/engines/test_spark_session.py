"""Spark as an engine: settings, errors before it starts, a stage on it, and nothing left after it."""

import io
import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.resources import Executors, Resources
from superworkflow.infra.contract.stage import Progress, StageRun
from superworkflow.infra.engines.spark.session import (
    SETTINGS_VARIABLE,
    python_memory,
    require_spark,
    runs_here,
    session_settings,
    settings_from_environment,
    task_cores,
)
from superworkflow.infra.launch.run_stage import Executed, execute
from superworkflow.infra.storage.dataset import DatasetWriter
from superworkflow.infra.storage.digest import dataset_digest
from superworkflow.infra.storage.source import Source
from tests.spark import needs_spark
from tests.toy_stages import COUNT, SCALE

GIB = 1 << 30


def test_settings_of_this_machine() -> None:
    settings = session_settings(
        "walk", Resources(cpu=3, memory=4 * GIB), Path("/scratch"), {"spark.sql.shuffle.partitions": "7"}
    )
    assert settings["spark.master"] == "local[3,4]"
    assert settings["spark.driver.memory"] == "2048m"
    assert settings["spark.driver.host"] == "127.0.0.1"
    assert settings["spark.app.name"] == "walk"
    assert settings["spark.sql.shuffle.partitions"] == "7"
    assert settings["spark.local.dir"].startswith("/scratch/")


def test_settings_of_a_cluster() -> None:
    given = {"spark.master": "k8s://https://api", "spark.driver.host": "10.0.0.7", "spark.task.maxFailures": "8"}
    settings = session_settings("walk", Resources(memory=100 << 20), Path("/scratch"), given)
    assert settings.items() >= given.items()
    assert settings["spark.driver.memory"] == "512m"  # the least that Spark takes
    assert not any(name.startswith("spark.executor") for name in settings)


def test_memory_of_python_is_that_of_whoever_works() -> None:
    assert python_memory(Resources(memory=8 * GIB)) == 4 * GIB
    assert python_memory(Resources(memory=8 * GIB, executors=Executors(count=3, cpu=2, memory=2 * GIB))) == GIB
    assert python_memory(Resources(memory=600 << 20)) == 88 << 20


@pytest.mark.parametrize(
    ("master", "here"),
    [("", True), ("local", True), ("local[2,4]", True), ("local-cluster[2,1,512]", False), ("k8s://api", False)],
)
def test_who_works_where(tmp_path: Path, master: str, here: bool) -> None:
    """Executors of a cluster on this machine have disks, memory and cores of their own, as those of any other."""
    job: StageRun[None] = StageRun(
        params=None, inputs={}, sources={}, output=DatasetWriter(tmp_path), checkpoint=tmp_path,
        resources=Resources(cpu=3, executors=Executors(count=2, cpu=1, memory=GIB)), progress=Progress("walk"),
        scratch=tmp_path, engine_settings={"spark.master": master} if master else {},
    )  # fmt: skip
    assert runs_here(job) == here
    assert task_cores(job) == (3 if here else 1)


def test_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings_from_environment() == {}
    monkeypatch.setenv(SETTINGS_VARIABLE, json.dumps({"spark.executor.instances": 3}))
    assert settings_from_environment() == {"spark.executor.instances": "3"}
    for text in ("spark.master=local", "[1]"):
        monkeypatch.setenv(SETTINGS_VARIABLE, text)
        with pytest.raises(UserError, match="SUPERWORKFLOW_SPARK_CONF: not a JSON object"):
            settings_from_environment()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(UserError, match=r"no pyspark.*pip install -r requirements-spark\.txt"):
            require_spark()
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(UserError, match=r"needs Java 17.*apt-get install"):
        require_spark()


def test_an_engine_that_the_stage_does_not_have(tmp_path: Path) -> None:
    for engine in ("spark", "flink"):
        with pytest.raises(UserError, match=f"--engine: stage scale .*'{engine}'.*Valid for scale: in-process"):
            execute(SCALE, {}, {}, str(tmp_path / "x"), Resources(), Progress("scale"), engine)
    assert not (tmp_path / "x").exists()


def _count(folder: Path, engine: str) -> Executed:
    (folder / "text.txt").write_text("line\n" * 5000)
    inputs, output = {"text": str(folder / "text.txt")}, str(folder / engine)
    progress = Progress("count", stream=io.StringIO())
    return execute(COUNT, {"skip": 3}, inputs, output, Resources(cpu=2, memory=GIB), progress, engine)


@needs_spark
def test_the_engine_changes_the_record_and_not_the_dataset(tmp_path: Path, scratch: Path) -> None:
    here, there = _count(tmp_path, "in-process"), _count(tmp_path, "spark")
    assert here.dataset.digest == there.dataset.digest
    digest = Source.of(tmp_path / "text.txt").digest
    assert there.dataset.digest == dataset_digest("count", "1", {"skip": 3}, {"text": digest})
    assert here.manifest.files == there.manifest.files
    assert (here.manifest.engine, there.manifest.engine) == ("in-process", "spark")
    assert there.manifest.rows == 4997
    assert list(scratch.iterdir()) == []


_RUN = """
import sys
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.contract.resources import Resources
from tests import toy_stages
made = execute(
    toy_stages.COUNT, {}, {"text": sys.argv[1]}, sys.argv[2], Resources(cpu=1, memory=1 << 30), Progress("count"),
    "spark",
)
import psutil, resource
children = resource.getrusage(resource.RUSAGE_CHILDREN)
print(made.manifest.rows, len(psutil.Process().children(recursive=True)), children.ru_utime > 0)
"""


@pytest.mark.slow
@needs_spark
def test_java_ends_with_the_session_and_is_measured(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("line\n" * 7)
    arguments = [sys.executable, "-c", _RUN, str(tmp_path / "text.txt"), str(tmp_path / "out")]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "7 0 True"


_LOGS = """
from pyspark import SparkContext
def log(context, text):
    context._jvm.org.apache.logging.log4j.LogManager.getLogger("org.apache.spark.util.Utils").error(text)
set_level, stop = SparkContext.setLogLevel, SparkContext.stop
SparkContext.setLogLevel = lambda self, level: log(self, "error before " + level) or set_level(self, level)
SparkContext.stop = lambda self: log(self, "error of the shutdown") or stop(self)
"""


@pytest.mark.slow
@needs_spark
def test_errors_of_spark_are_logged_but_for_those_of_its_shutdown(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("line\n")
    arguments = [sys.executable, "-c", _LOGS + _RUN, str(tmp_path / "text.txt"), str(tmp_path / "out")]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr
    logged = [line for line in done.stderr.splitlines() if "error " in line]
    assert logged == ["Spark ERROR Utils: error before ERROR", "Spark ERROR Utils: error before OFF"]


@needs_spark
def test_java_ends_with_a_stage_that_is_killed(tmp_path: Path) -> None:
    code = _RUN.replace("made = ", "import pyspark\npyspark.SparkContext.stop = lambda self: print('up', flush=True) or"
                        " __import__('time').sleep(600)\nmade = ")  # fmt: skip
    (tmp_path / "text.txt").write_text("line\n")
    command = [sys.executable, "-c", code, str(tmp_path / "text.txt"), str(tmp_path / "out")]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        started = psutil.Process(child.pid).children(recursive=True)
        assert any("java" in process.name() for process in started)
    finally:
        child.kill()
        child.wait()
    _, alive = psutil.wait_procs(started, timeout=30)
    assert alive == []
