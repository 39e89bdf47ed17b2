"""The process of a Spark executor: its command line, and its report when it ends."""

import json
from pathlib import Path

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.engines.spark.executor import executor_command, run_executor
from superworkflow.infra.process.resource_usage import out_of_memory_kills
from tests.spark import needs_spark

POD = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "x-exec-3",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_JAVA_OPT_1": "-Dspark.driver.port=7078",
    "SPARK_JAVA_OPT_0": "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "SPARK_JAVA_OPT_10": "-Dten=10",
}


@needs_spark
def test_command() -> None:
    command = executor_command(POD)
    assert command[0] == "java"
    assert command[1:4] == ["--add-opens=java.base/java.nio=ALL-UNNAMED", "-Dspark.driver.port=7078", "-Dten=10"]
    assert "-Xmx512m" in command
    assert command[command.index("--driver-url") + 1] == POD["SPARK_DRIVER_URL"]
    assert command[command.index("--podName") + 1] == "x-exec-3"
    assert executor_command(POD | {"JAVA_HOME": "/opt/java"})[0] == "/opt/java/bin/java"


def test_outside_of_an_executors_pod() -> None:
    with pytest.raises(UserError, match="SPARK_DRIVER_URL"):
        executor_command({})


@pytest.mark.slow
@needs_spark
def test_an_executor_without_its_driver_ends_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    heap = {"SPARK_EXECUTOR_MEMORY": "64m", "SPARK_DRIVER_URL": "spark://nobody@127.0.0.1:1"}
    home = {"PATH": "/usr/bin:/bin", "SPARK_LOCAL_DIRS": str(tmp_path)}
    options = {"SPARK_JAVA_OPT_0": "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "SPARK_JAVA_OPT_1": "-Da=b"}
    assert run_executor(POD | heap | home | options | {"SPARK_EXECUTOR_POD_IP": "127.0.0.1"}, tmp_path / "message") == 1
    message = json.loads((tmp_path / "message").read_text())
    assert "Exception" in message["error"]
    assert message["error"] in capsys.readouterr().err
    assert message["out_of_memory_kills"] == out_of_memory_kills()


@pytest.mark.parametrize("version", [1, 2])
def test_out_of_memory_kills(version: int, tmp_path: Path) -> None:
    assert out_of_memory_kills(tmp_path) == 0
    if version == 2:
        (tmp_path / "cgroup.controllers").touch()
        (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\n")
    else:
        (tmp_path / "memory").mkdir()
        (tmp_path / "memory" / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert out_of_memory_kills(tmp_path) == 2
