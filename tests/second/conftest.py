"""A graph of 442 patients with diabetes (Efron et al., 2004), and the command line with the superworkflow."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes

from tests import warm
from tests.flows.command_line import Answer

ROOT = Path(__file__).parents[2]
SITE = ROOT / "tests" / "second" / "site"
"""Folder of the installed package that the superworkflow comes from."""
PRACTICES, ALIKE = 8, 5
DESCRIPTION = """\
nodes:
  patient: {file: patients.csv}
  practice: {file: practices.csv}
edges:
  visits: {from: patient, to: practice, file: visits.csv}
  resembles: {from: patient, to: patient, file: resembles.csv}
"""


def write_graph(folder: Path) -> Path:
    """Description of a graph of two node tables and two edge tables, written next to them.

    Patients have ten measurements and the progression of the disease after a year; they visit practices by their age,
    and resemble those whose body mass and blood pressure are nearest to theirs.
    """
    data = load_diabetes(scaled=False)
    patients = pd.DataFrame(data.data, columns=data.feature_names).assign(progression=data.target)
    patients.insert(0, "id", np.arange(len(patients)) + 1000)
    practice = patients["age"].rank(method="first").astype(int) * PRACTICES // (len(patients) + 1)
    staff = practice.value_counts().sort_index() // 20 + np.arange(PRACTICES)
    near = patients[["bmi", "bp"]].to_numpy() / patients[["bmi", "bp"]].std().to_numpy()
    apart = np.linalg.norm(near[:, None] - near[None, :], axis=2) + np.eye(len(near)) * 1e9
    alike = patients["id"].to_numpy()[np.argsort(apart, axis=1, kind="stable")[:, :ALIKE]]
    tables = {
        "patients": patients,
        "practices": pd.DataFrame({"id": np.arange(PRACTICES), "staff": staff}),
        "visits": pd.DataFrame({"patient": patients["id"], "practice": practice}),
        "resembles": pd.DataFrame({"patient": patients["id"].repeat(ALIKE), "other": alike.ravel()}),
    }
    for name, rows in tables.items():
        rows.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
    (folder / "patients.yaml").write_text(DESCRIPTION)
    return folder / "patients.yaml"


@pytest.fixture(scope="session")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The description."""
    return write_graph(tmp_path_factory.mktemp("graph"))


@dataclass
class Second:
    """Runs `superworkflow COMMAND second`, or of a file, on one store and one Prefect server."""

    store: Path
    graph: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, command: str, *more: str, name: str = "second", expect: int = 0) -> Answer:
        arguments = [command, name, "--graph", str(self.graph), *more, "--store", str(self.store)]
        done = warm.run(arguments, env=os.environ | self.environment, cwd=ROOT, timeout=300)
        assert done.returncode == expect, f"exit {done.returncode}\n{done.stderr[-4000:]}"
        return Answer(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def second(tmp_path_factory: pytest.TempPathFactory, graph: Path, prefect_api: str) -> Second:
    """The command line on one store that all tests of this folder share."""
    path = os.pathsep.join([str(SITE), str(ROOT)])
    environment = {"PREFECT_API_URL": prefect_api, "MLFLOW_TRACKING_URI": "", "PYTHONPATH": path}
    return Second(tmp_path_factory.mktemp("second") / "store", graph, environment)
