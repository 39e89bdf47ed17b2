"""Measurements of 442 patients with diabetes (Efron et al., 2004), and the command line with the superworkflow."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from tests.flows.command_line import Answer
from tests.flows.conftest import prefect_api

__all__ = ["prefect_api"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten measurements of each patient and the progression of the disease after a year."""
    data = load_diabetes(scaled=False)
    path = tmp_path_factory.mktemp("table") / "diabetes.csv"
    header = ",".join([*data.feature_names, "progression"])
    np.savetxt(path, np.column_stack([data.data, data.target]), "%.6g", ",", header=header, comments="")
    return path


@dataclass
class Second:
    """Runs `superworkflow COMMAND second` on one store and one Prefect server."""

    store: Path
    table: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, command: str, *more: str, expect: int = 0) -> Answer:
        arguments = [sys.executable, "-m", "superworkflow", command, "second", "--table", str(self.table), *more]
        arguments += ["--store", str(self.store)]
        done = subprocess.run(
            arguments, env=os.environ | self.environment, cwd=ROOT, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == expect, f"exit {done.returncode}\n{done.stderr[-4000:]}"
        return Answer(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def second(tmp_path_factory: pytest.TempPathFactory, table: Path, prefect_api: str) -> Second:
    """The command line on one store that all tests of this folder share."""
    path = os.pathsep.join([str(ROOT / "tests" / "second" / "site"), str(ROOT)])
    environment = {"PREFECT_API_URL": prefect_api, "MLFLOW_TRACKING_URI": "", "PYTHONPATH": path}
    return Second(tmp_path_factory.mktemp("second") / "store", table, environment)
