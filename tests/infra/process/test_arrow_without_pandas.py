"""Arrow without pandas: in processes of their own, since what was imported stays."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

STAGE = """
import json, sys
from superworkflow.__main__ import main
from superworkflow.tasks import {stage}
status = main({arguments!r})
print(json.dumps([status, "numba" in sys.modules, "pandas" in sys.modules]))
"""
SERIES = """
import json, sys
from superworkflow.infra.process.arrow_without_pandas import leave_out_pandas
{before}
import numpy as np, pyarrow as pa
pa.array(np.arange(3)).to_numpy()
imported = "pandas" in sys.modules
import pandas as pd
print(json.dumps([imported, pa.array(pd.Series([1.0, float("nan")])).null_count]))
"""

MINE = """
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.estimate import Estimate
from superworkflow.infra.contract.stage import Input, Output, Stage


def missing(job):
    import pandas as pd, pyarrow as pa
    job.output.json("nothing.json", {})
    return Output(rows=0, stats={"missing": pa.array(pd.Series([1.0, float("nan")])).null_count})


MISSING = Stage(
    name="missing", version="1", params=StageParams, inputs={"table": Input("a table", file=True)},
    run=f"{__name__}:missing", help="Values that are missing.",
    estimate=lambda params, inputs, resources: Estimate(
        memory_bytes=1 << 26, base_bytes=1 << 26, cpu_s=1.0, start_s=0.5, output_bytes=100),
)
SUPERWORKFLOW = Superworkflow(
    name="values", help="values", stages=(MISSING,), sources={"table": "a table"},
    diagram=lambda flow, table: flow.stage(MISSING, table=table),
)
"""


def _last_line(code: str) -> Any:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("", [True, 1]),
        ("leave_out_pandas()", [False, 1]),
        ("leave_out_pandas(); leave_out_pandas()", [False, 1]),
        ("import pandas; leave_out_pandas()", [True, 1]),
    ],
    ids=["as it is", "left out", "left out twice", "imported before"],
)
def test_pandas_is_left_out_until_it_is_imported(before: str, expected: list[Any]) -> None:
    assert _last_line(SERIES.format(before=before)) == expected


def test_a_stage_of_ours_imports_none(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"{i},{(i * 7 + 1) % 50}\n" for i in range(50)))
    arguments = ["stage", "index", "--input", f"edges={tmp_path / 'edges.csv'}", "--output", str(tmp_path / "index"),
                 "--params-json", '{"engine": "compiled", "weighted": false}', "--threads", "1"]  # fmt: skip
    assert _last_line(STAGE.format(stage="index", arguments=arguments)) == [0, True, False]


def test_a_users_stage_has_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "table.csv").write_text("a\n1\n\n")
    arguments = ["stage", "missing", "--code", str(tmp_path / "mine.py"), "--input", f"table={tmp_path / 'table.csv'}",
                 "--output", str(tmp_path / "out")]  # fmt: skip
    # As a server may.
    before = "from superworkflow.infra.process.arrow_without_pandas import leave_out_pandas; leave_out_pandas()"
    assert _last_line(before + STAGE.format(stage="index", arguments=arguments))[0] == 0
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["stats"]["missing"] == 1
