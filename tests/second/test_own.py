"""Superworkflows of a package and of users' files: run and deployed, in real processes."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import superworkflow.deployed
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.code_file import VARIABLE
from tests.flows.deployments import ask, assert_tasks, running_worker, start_run, wait_for_state
from tests.second.conftest import ROOT, Second
from tests.superworkflow.test_your_own import example

POOL = "second-tests"
OUTLIERS = Path(__file__).with_name("outliers.py")


def test_the_example_of_the_page_runs(second: Second, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(example())
    edges = ROOT / "flows" / "data" / "email-eu-core.txt.gz"
    arguments = ["run", "./mine.py", "--edges", str(edges), "--store", "store", "--no-tracking", "--json"]
    environment = os.environ | second.environment | {"PYTHONPATH": ""}
    command = [sys.executable, "-P", "-m", "superworkflow", *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["degrees.spread"] == pytest.approx(1.1556, abs=1e-4)
    (manifest,) = (tmp_path / "store" / "degrees").glob("*/manifest.json")
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    assert json.loads(manifest.read_text())["inputs"]["code"] == {"digest": sha256, "stage": None}
    file.write_text(example() + "\n# edited\n")
    command[4:5] = ["explain"]
    explain = [each for each in command if each not in ("--no-tracking", "--json")]
    done = subprocess.run(explain, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    index, degrees = done.stdout.splitlines()
    assert "cached" in index
    assert "will run: the file that defines the stage differs" in degrees


@pytest.fixture
def deployed(second: Second, tmp_path: Path) -> Iterator[Second]:
    """The command line on an empty store, with a real worker of the pool."""
    alone = replace(second, store=tmp_path / "store")
    alone("deploy", "--name", "nightly", "--pool", POOL)  # makes the pool
    with running_worker(POOL, "process", tmp_path / "worker", alone.environment):
        yield alone


@pytest.mark.slow
def test_deployed_from_a_package_and_from_a_file(
    deployed: Second, prefect_api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("--name", "nightly", "--pool", POOL, "--json", "--set", "fit.degree=3")
    whole = deployed("deploy", *settings, "curved.rounds=5").document["id"]
    file = tmp_path / "mine.py"
    file.write_text(OUTLIERS.read_text())
    part = deployed("deploy", *settings, name=str(file)).document["id"]
    file.write_text("raise SystemExit('edited since')")  # what was deployed is what runs
    run = start_run(prefect_api, whole)
    wait_for_state(prefect_api, run, "Completed")
    assert_tasks(prefect_api, run, dict.fromkeys(("measurements", "fit", "curved", "choose"), "Completed"))
    run = start_run(prefect_api, part)
    wait_for_state(prefect_api, run, "Completed")
    assert_tasks(prefect_api, run, {"measurements": "Cached", "fit": "Cached", "outliers": "Completed"})
    assert len(list(deployed.store.glob("outliers/*/manifest.json"))) == 1
    found = ask("GET", f"{prefect_api}/deployments/{part}").json()
    assert found["entrypoint"] == "superworkflow.deployed.missed"
    assert {"graph", "measurements", "fit", "outliers"} <= set(found["parameter_openapi_schema"]["properties"])

    reference = found["job_variables"]["env"][VARIABLE]
    copy = Path(reference.partition("@")[2])
    assert reference == f"{hashlib.sha256(OUTLIERS.read_bytes()).hexdigest()}@{copy}"
    copy.write_text("raise SystemExit('written by somebody else')\n")
    monkeypatch.setenv(VARIABLE, reference)
    with pytest.raises(UserError, match=r"this copy of the code has been changed: .* it was not run"):
        _ = superworkflow.deployed.missed
