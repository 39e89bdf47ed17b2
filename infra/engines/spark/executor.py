"""One Spark executor in a pod: starts its Java process, and reports its usage when it ends.

What Spark says of the executor stands in the pod's environment. What it used, its last error, and whether the kernel
ended a process of it for lack of memory go as JSON into the pod's termination message, which stays with its status.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.engines.termination_message import MESSAGE, leave_message

_LOGGING = Path(__file__).with_name("log4j2.properties")
_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTION = "SPARK_JAVA_OPT_"
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def executor_command(environment: Mapping[str, str]) -> list[str]:
    """The Java command line of the executor that this environment describes.

    Raises:
        UserError: it describes none, or there is no pyspark.
    """
    missing = [name for name in (*_ARGUMENTS.values(), "SPARK_EXECUTOR_MEMORY") if name not in environment]
    if missing:
        raise UserError(
            "not in the pod of a Spark executor", where=missing[0], remedy="Leave starting executors to a Spark driver"
        )
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise UserError("there is no pyspark in this image", where="image", remedy="Build it from spark.Dockerfile")
    home = environment.get("JAVA_HOME")
    numbers = sorted(int(name.removeprefix(_OPTION)) for name in environment if name.startswith(_OPTION))
    arguments = [text for flag, name in _ARGUMENTS.items() for text in (flag, environment[name])]
    return [
        f"{home}/bin/java" if home else "java",
        *(environment[f"{_OPTION}{number}"] for number in numbers),
        f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        "-XX:-UsePerfData",
        f"-Xmx{environment['SPARK_EXECUTOR_MEMORY']}",
        "-cp",
        f"{Path(found.origin).parent}/jars/*",
        _BACKEND,
        *arguments,
    ]


def main(arguments: Sequence[str]) -> int:
    """The command `executor`, which Spark writes into the pods of executors; all else is in their environment."""
    return run_executor()


def run_executor(environment: Mapping[str, str] = os.environ, message: Path = MESSAGE) -> int:
    """Run the executor to its end; returns its exit status, as a shell would."""
    child = subprocess.Popen(
        executor_command(environment), env=dict(environment), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, errors="replace",
    )  # fmt: skip

    def end(number: int, frame: object) -> None:
        leave_message(message)  # first: the pod may have no time left after its Java process
        child.terminate()

    signal.signal(signal.SIGTERM, end)
    error = ""
    assert child.stderr is not None
    for line in child.stderr:
        sys.stderr.write(line)
        if ("Exception" in line or "ERROR" in line) and not line[0].isspace():  # not the lines of its stack
            error = line.strip()
    code = child.wait()
    leave_message(message, error=error if code else "")
    return code if code >= 0 else 128 - code
