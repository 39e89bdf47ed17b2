"""A Spark session for one stage: inside this process, or as the launcher says.

Settings, weaker first: what every session has < what one inside this process has, when no other master is named <
`StageRun.spark_settings`, which come from the environment variable `SUPERWORKFLOW_SPARK_CONF` (a JSON object).
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infra.errors import UserError
from infra.progress import INTERVAL_SECONDS, Progress
from infra.stage import StageRun

SETTINGS_VARIABLE = "SUPERWORKFLOW_SPARK_CONF"
TASK_ATTEMPTS = 4
"""Times that a task is tried before the stage fails."""

_LEAST_HEAP = 512 << 20  # below, Spark refuses to start
_LOGGING = Path(__file__).parent / "log4j2.properties"
_EVERYWHERE = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.task.maxFailures": str(TASK_ATTEMPTS),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


def settings_from_environment() -> dict[str, str]:
    """Spark's configuration as a launcher gave it; empty for none.

    Raises:
        UserError: the variable holds no JSON object.
    """
    text = os.environ.get(SETTINGS_VARIABLE, "")
    try:
        values = json.loads(text) if text else {}
    except json.JSONDecodeError:
        values = None
    if not isinstance(values, dict):
        raise UserError(
            "not a JSON object of Spark settings", where=SETTINGS_VARIABLE, value=text[:100],
            remedy='Write {"spark.master": "k8s://…"}, or unset it for Spark on this machine',
        )  # fmt: skip
    return {name: str(value) for name, value in values.items()}


def session_settings(stage: str, threads: int, memory: int, scratch: Path, given: Mapping[str, str]) -> dict[str, str]:
    """All settings of a session.

    Args:
        stage: name of the session.
        threads: tasks at a time, inside this process.
        memory: bytes of the driver. The half of it is Java's heap; Python, which does the work, has the rest.
        scratch: folder for what Spark spills.
        given: the launcher's settings, stronger than ours.
    """
    ours = {
        **_EVERYWHERE,
        "spark.app.name": stage,
        "spark.pyspark.python": sys.executable,
        "spark.driver.memory": f"{max(_LEAST_HEAP, memory // 2) >> 20}m",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} -XX:-UsePerfData",
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if "spark.master" not in given:
        ours |= {
            "spark.master": f"local[{threads},{TASK_ATTEMPTS}]",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * threads),
            "spark.default.parallelism": str(2 * threads),
        }
    return ours | dict(given)


@contextmanager
def spark_session(job: StageRun[Any]) -> Iterator[Any]:
    """The `SparkSession` of a stage; stopped at the end, whatever happens, and its Java process with it.

    While it is open the progress of Spark's tasks is told through `job.progress`.

    Raises:
        UserError: Spark or Java is missing.
    """
    require_spark()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    settings = session_settings(job.progress.stage, job.threads, job.resources.memory, job.scratch, job.spark_settings)
    if sys.flags.safe_path:
        os.environ["PYTHONSAFEPATH"] = "1"  # Python workers are to find the same modules as this process
    had_java = SparkContext._gateway is not None
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    try:
        with _told(session.sparkContext, job.progress):
            yield session
    finally:
        session.stop()
        if not had_java:
            _end_java()


def require_spark() -> None:
    """Check that Spark can run here.

    Raises:
        UserError: names the line that installs what is missing.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise UserError(
            "the stage is to run on Spark, and Python has no pyspark", where="--engine", value="spark",
            remedy="Install it: pip install -r requirements-spark.txt (or pip install 'superworkflow[spark]')",
        )  # fmt: skip
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and Path(home, "bin", "java").exists()):
        raise UserError(
            "the stage is to run on Spark, which needs Java 17 or newer", where="--engine", value="spark",
            remedy="Install it: apt-get install default-jre-headless",
        )  # fmt: skip


def _end_java() -> None:
    """End the Java process that this session started, so that what it used counts as this process's children's."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


@contextmanager
def _told(context: Any, progress: Progress) -> Iterator[None]:
    """Tell how many of the tasks of the running jobs are done, twice a second."""
    ended = threading.Event()

    def follow() -> None:
        tracker = context.statusTracker()
        while not ended.wait(INTERVAL_SECONDS):
            try:
                stages = [
                    tracker.getStageInfo(stage)
                    for job in tracker.getActiveJobsIds()
                    if (info := tracker.getJobInfo(job)) is not None
                    for stage in info.stageIds
                ]
            except Exception:  # the context is going down; the stage itself says why
                return
            total = sum(stage.numTasks for stage in stages if stage)
            if total:
                done = sum(stage.numCompletedTasks for stage in stages if stage)
                failed = sum(stage.numFailedTasks for stage in stages if stage)
                progress.update(done, total, "tasks", **({"failed": failed} if failed else {}))

    follower = threading.Thread(target=follow, name="spark-progress", daemon=True)
    follower.start()
    try:
        yield
    finally:
        ended.set()
        follower.join()
