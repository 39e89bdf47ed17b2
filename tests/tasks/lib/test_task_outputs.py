"""Tests of the places where executors keep what later tasks need."""

import tempfile
from pathlib import Path

import pytest

from superworkflow.tasks.lib.in_parts.task_outputs import executor_folder


@pytest.mark.parametrize(
    ("given", "folder"),
    [
        ({"SPARK_EXECUTOR_DIRS": "/a/executor-1:/b/executor-1", "SPARK_LOCAL_DIRS": "/c"}, "/a/executor-1"),
        ({"SPARK_LOCAL_DIRS": "/c,/d"}, "/c"),
        ({}, ""),
    ],
)
def test_the_folder_of_an_executor(monkeypatch: pytest.MonkeyPatch, given: dict[str, str], folder: str) -> None:
    for name in ("SPARK_EXECUTOR_DIRS", "SPARK_LOCAL_DIRS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert executor_folder("rows-1") == Path(folder or tempfile.gettempdir()) / "rows-1"
    assert executor_folder("/disk/rows") == Path("/disk/rows")
