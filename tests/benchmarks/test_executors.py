"""Work of executors, summed from Spark's event log and the files of Python's processes."""

import json
from typing import Any

import pytest

from tests.benchmarks.executors import Executor, Run, read_run, table
from tests.benchmarks.measure import Failed


def task(executor: str, cpu_s: float, shuffled: int, reason: str = "Success") -> str:
    metrics = {
        "Executor CPU Time": int(cpu_s * 1e9), "Executor Deserialize CPU Time": 500_000_000,
        "Shuffle Write Metrics": {"Shuffle Bytes Written": shuffled},
    }  # fmt: skip
    event: dict[str, Any] = {
        "Event": "SparkListenerTaskEnd", "Task End Reason": {"Reason": reason},
        "Task Info": {"Executor ID": executor}, "Task Metrics": metrics,
    }  # fmt: skip
    return json.dumps(event)


def process(cpu_s: float, java_s: float) -> str:
    return json.dumps({"cpu_s": cpu_s, "java_s": java_s})


def test_tasks_and_processes_of_each_executor_are_added() -> None:
    events = [
        json.dumps({"Event": "SparkListenerApplicationStart"}),
        task("1", 1, 10),
        task("0", 2, 5),
        task("1", 3, 7),
    ]
    counted = {"0": [process(9, 20)], "1": [process(6, 11), process(4, 12)]}
    run = read_run(events, counted, edges=11)
    assert run.executors == (Executor(1, 2.5, 9, 20, 5), Executor(2, 5, 10, 12, 17))
    assert (run.slowest_s, run.sent) == (15, 2)
    with pytest.raises(Failed, match="Resubmitted"):
        read_run([*events, task("0", 1, 1, "Resubmitted")], counted, edges=11)


def test_the_executor_that_takes_the_most_counts() -> None:
    def run(*cpu_s: float) -> Run:
        return Run(tuple(Executor(1, 1, each - 1, 0, 20) for each in cpu_s), edges=20)

    lines = table(4, {1: [run(16)], 2: [run(7, 8), run(9, 5)]}).splitlines()[2:]
    assert lines[:2] == ["| 1 | 16.0 | 1.0× | 1.0 |", "| 2 | 8.0 to 9.0 | 1.9× | 2.0 |"]
    assert "4.0 CPU seconds" in lines[-1]
