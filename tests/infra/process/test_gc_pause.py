"""Python's collector while a stage's process starts: off, and on again before the work begins."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from superworkflow.infra.process.gc_pause import collect, not_collecting

MINE = """
import gc

from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.estimate import Estimate
from superworkflow.infra.contract.stage import Input, Output, Stage

ENABLED = gc.isenabled()


def looks(job):
    job.output.json("found.json", [ENABLED, gc.isenabled(), gc.get_freeze_count() > 0])
    return Output(rows=1)


LOOKS = Stage(
    name="looks", version="1", params=StageParams, inputs={"table": Input("a table", file=True)},
    run=f"{__name__}:looks", help="looks",
    estimate=lambda params, inputs, resources: Estimate(
        memory_bytes=1 << 28, base_bytes=1 << 28, cpu_s=1.0, start_s=0.5, output_bytes=100),
)
SUPERWORKFLOW = Superworkflow(
    name="looked", help="looks", stages=(LOOKS,), sources={"table": "a table"},
    diagram=lambda flow, table: flow.stage(LOOKS, table=table),
)
"""


@pytest.fixture(autouse=True)
def _thawed():
    yield
    gc.unfreeze()


def test_nothing_is_collected_until_it_is_asked_for():
    with not_collecting(True):
        assert not gc.isenabled()
        with not_collecting(True):  # a command within another
            assert not gc.isenabled()
        assert not gc.isenabled()
        collect()
        assert gc.isenabled()
        collect()
    assert gc.isenabled()


def test_collecting_goes_on_whatever_happens():
    with pytest.raises(ValueError, match="bad"), not_collecting(True):
        raise ValueError("bad")
    assert gc.isenabled()


def test_who_chose_not_to_collect_is_heeded():
    gc.disable()
    try:
        with not_collecting(True):
            collect()
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_other_commands_collect():
    with not_collecting(False):
        assert gc.isenabled()


def test_a_stage_collects_again_when_its_work_begins(tmp_path: Path):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "table.csv").write_text("a\n1\n")
    command = [sys.executable, "-m", "superworkflow", "stage", "looks", "--code", str(tmp_path / "mine.py"),
               "--input", f"table={tmp_path / 'table.csv'}", "--output", str(tmp_path / "out")]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "found.json").read_text().split() == ["[", "false,", "true,", "true", "]"]
