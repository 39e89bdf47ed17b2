"""A Spark session for one stage: inside this process, or as the launcher says.

Settings, weaker first: ours, sized from the resources < `StageRun.engine_settings`, which come from the environment
variable `SUPERWORKFLOW_SPARK_CONF` (a JSON object) < the stage's own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.extras import install_line
from superworkflow.infra.contract.progress import INTERVAL_SECONDS, Progress
from superworkflow.infra.contract.stage import Resources, StageRun
from superworkflow.infra.engines.task_session import TASK_ATTEMPTS

SETTINGS_VARIABLE = "SUPERWORKFLOW_SPARK_CONF"
HEAP_SHARE = 0.5
"""Java's share of the memory; the rest is for Python's processes, which do the most of the work."""
_LEAST_HEAP = 512 << 20  # below, Spark refuses to start
_LOGGING = Path(__file__).parent / "log4j2.properties"
_LOG_LEVEL = "ERROR"  # as in that file
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


def session_settings(stage: str, resources: Resources, scratch: Path, given: Mapping[str, str]) -> dict[str, str]:
    """All settings of a session.

    Args:
        stage: name of the session.
        resources: the driver's.
        scratch: folder for what Spark spills.
        given: the launcher's settings, stronger than ours; they say all of executors.
    """
    ours = {
        **_EVERYWHERE,
        "spark.app.name": stage,
        "spark.driver.memory": f"{max(_LEAST_HEAP, int(HEAP_SHARE * resources.memory)) >> 20}m",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} -XX:-UsePerfData",
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if "spark.master" not in given:
        ours |= {
            "spark.master": f"local[{resources.threads},{TASK_ATTEMPTS}]",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * resources.threads),
            "spark.default.parallelism": str(2 * resources.threads),
        }
    return ours | dict(given)


def runs_here(job: StageRun[Any]) -> bool:
    """True if Spark's tasks share this process's machine and memory; executors of a `local-cluster[…]` do not."""
    master = job.engine_settings.get("spark.master", "local")
    return master == "local" or master.startswith("local[")


def task_cores(job: StageRun[Any]) -> int:
    """Cores of the process that works: an executor, or this one."""
    executors = job.resources.executors
    return job.threads if executors is None or runs_here(job) else max(1, int(executors.cpu))


def python_memory(resources: Resources) -> int:
    """Bytes for the Python processes of an executor, or of the stage's own machine where it has none."""
    memory = resources.executors.memory if resources.executors else resources.memory
    return min(int((1 - HEAP_SHARE) * memory), memory - _LEAST_HEAP)


@contextmanager
def spark_session(job: StageRun[Any], settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """The `SparkSession` of a stage; stopped at the end, whatever happens, and its Java process with it.

    While it is open, `job.progress` follows Spark's tasks.

    Args:
        job: the stage's run.
        settings: the stage's own settings, stronger than all others.

    Raises:
        UserError: Spark or Java is missing.
    """
    require_spark()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    ours = session_settings(job.progress.stage, job.resources, job.scratch, job.engine_settings)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors run the same image
    if sys.flags.safe_path:
        os.environ["PYTHONSAFEPATH"] = "1"  # Python workers are to find the same modules as this process
    had_java = SparkContext._gateway is not None
    conf = SparkConf(loadDefaults=False).setAll(list((ours | dict(settings or {})).items()))
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    session.sparkContext.setLogLevel(_LOG_LEVEL)  # of a Java process that has stopped a session before
    try:
        with _reporting(session.sparkContext, job.progress):
            yield session
    finally:
        _stop_quietly(session)
        if not had_java:
            end_java()


def _stop_quietly(session: Any) -> None:
    """Stop a session without the errors that Spark logs of its own shutdown.

    An executor that leaves while the scheduler goes down makes Spark log "Could not find CoarseGrainedScheduler", a
    race of its own (SPARK-22770, SPARK-25637) that says nothing of the stage, whose work is over by then.
    """
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):  # Java has ended already: there is nothing to silence
        session.sparkContext.setLogLevel("OFF")
    session.stop()


def require_spark() -> None:
    """Check that Spark can run here.

    Raises:
        UserError: names the line that installs what is missing.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise UserError(
            "the stage is to run on Spark, and Python has no pyspark", where="--engine", value="spark",
            remedy=f"Run `{install_line('spark')}`; in a checkout `pip install -r requirements-spark.txt`",
        )  # fmt: skip
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and Path(home, "bin", "java").exists()):
        raise UserError(
            "the stage is to run on Spark, which needs Java 17 or newer", where="--engine", value="spark",
            remedy="Install it: apt-get install default-jre-headless",
        )  # fmt: skip


def end_java() -> None:
    """End the Java process of Spark's sessions; what it used then counts among this process's children."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


@contextmanager
def _reporting(context: Any, progress: Progress) -> Iterator[None]:
    """Report how many tasks of the running jobs are done, twice a second."""
    ended = threading.Event()

    def follow() -> None:
        tracker, reported = context.statusTracker(), (0, 0, 0)
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
            counts = [(s.numCompletedTasks, s.numTasks, s.numFailedTasks) for s in stages if s is not None]
            done, total, failed = (sum(column) for column in zip(*counts, strict=True)) if counts else reported
            if (done, total, failed) != reported:
                reported = (done, total, failed)
                progress.update(done, total, "tasks", **({"failed": failed} if failed else {}))

    follower = threading.Thread(target=follow, name="spark-progress", daemon=True)
    follower.start()
    try:
        yield
    finally:
        ended.set()
        follower.join()
