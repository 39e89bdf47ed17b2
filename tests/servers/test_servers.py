"""The servers of docker-compose.yml as a team has them: nights that retrain, a bad one among them, under which servers
are restarted and all disks are lost.

`make test-servers` runs it, apart from the rest of the suite: it builds images, and waits for services to start.
`SUPERWORKFLOW_TEST_SERVERS` says on which images of PostgreSQL and S3: `real`, those that the file names, or
`stand-ins` (tests/servers/), which need no image registry.
"""

import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fsspec
import httpx
import pytest
import yaml
from mlflow import MlflowClient

from superworkflow.__main__ import main
from superworkflow.infra.base.dotenv import read_environment
from superworkflow.infra.tracking.models import ModelRegistry
from tests.docker import DOCKER, REGISTRY, ROOT, TAG, build, build_stand_in, docker, need_engine
from tests.flows.command_line import SMALL
from tests.flows.deployments import ask, eventually, start_run
from tests.real_s3 import free_ports

pytestmark = pytest.mark.timeout(3600)
LONG = 1500
"""Seconds within which a service starts, or a run ends, on a slow machine that has other work."""
CHOSEN = os.environ.get("SUPERWORKFLOW_TEST_SERVERS", "")
PASSWORD = 'pa$$w@rd: #/%25"x&'
MODEL = "node2vec-nightly"
FOLDER = "superworkflow/in"
SOURCES = ["--edges", f"s3://{FOLDER}/edges.csv", "--labels", f"s3://{FOLDER}/labels.csv"]
SETTINGS = ["--set", *SMALL, "node2vec.link_prediction=false"]
SERVICES = {"postgres", "s3", "prefect", "mlflow", "worker", "dashboard", "optuna-dashboard"}


def _compose() -> list[str]:
    if docker("compose", "version").returncode == 0:
        return [DOCKER, "compose"]
    if (found := shutil.which("docker-compose")) is None:
        pytest.skip("no Docker Compose: apt-get install docker-compose")
    return [found]


@dataclass
class Servers:
    """A project of Compose.

    Args:
        file: of its settings, an `.env`.
        project: its name.
        command: of Compose, with its options.
    """

    file: Path
    project: str
    command: list[str]

    def shell(self, line: str) -> None:
        """A line as docker-compose.yml shows it, in the folder of the settings."""
        line = line.replace("docker compose", shlex.join(self.command))
        # What this process has in its environment would come before the file.
        given = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME") or "DOCKER" in name}
        done = subprocess.run(["bash", "-c", line], cwd=self.file.parent, env=given, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:] + self.logs()

    def wait(self) -> None:
        """Until all services are healthy."""
        label = f"label=com.docker.compose.project={self.project}"
        listed = '{{.Label "com.docker.compose.service"}} {{.Status}}'

        def healthy() -> bool:
            lines = docker("ps", "--filter", label, "--format", listed).stdout.splitlines()
            return {line.split()[0] for line in lines if "(healthy)" in line} == SERVICES

        try:
            eventually(healthy, LONG)
        except AssertionError:
            raise AssertionError(self.logs()) from None

    def logs(self) -> str:
        done = subprocess.run([*self.command, "logs", "--no-color", "--tail", "40"], capture_output=True, text=True)
        return done.stdout[-8000:]


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    """Up and healthy, with passwords that have to be quoted; what leads to them is in the environment."""
    if CHOSEN not in ("real", "stand-ins"):
        pytest.skip("SUPERWORKFLOW_TEST_SERVERS is neither real nor stand-ins; make test-servers")
    need_engine()
    command = _compose()
    build("cpu", "flow", "worker")
    ports = dict(
        zip(("POSTGRES", "S3", "PREFECT", "MLFLOW", "DASHBOARD", "OPTUNA"), free_ports("127.0.0.1", 6), strict=True)
    )
    more = {"REGISTRY": REGISTRY, "TAG": TAG, "MLFLOW_WORKERS": 1} | {
        f"{name}_PORT": port for name, port in ports.items()
    }
    if CHOSEN == "stand-ins":
        more |= {"POSTGRES_IMAGE": build_stand_in("postgres"), "S3_IMAGE": build_stand_in("s3")}
    text = (ROOT / ".env.example").read_text().replace("AUTH_STRING=''", f"AUTH_STRING='admin:{PASSWORD}'")
    text = text.replace("=''", f"='{PASSWORD}'")
    for usual, name in (("5432", "POSTGRES"), ("9000", "S3"), ("4200", "PREFECT"), ("8060", "DASHBOARD")):
        text = text.replace(f"127.0.0.1:{usual}", f"127.0.0.1:{ports[name]}")
    text = text.replace("127.0.0.1:5000", f"127.0.0.1:{ports['MLFLOW']}")
    (file := tmp_path / ".env").write_text(text + "".join(f"{name}={value}\n" for name, value in more.items()))
    often = {"services": {"worker": {"environment": {"PREFECT_WORKER_QUERY_SECONDS": "2"}}}}
    (tmp_path / "often.yml").write_text(yaml.safe_dump(often))
    project = f"superworkflow-{os.getpid()}"
    files = ["-f", str(ROOT / "docker-compose.yml"), "-f", str(tmp_path / "often.yml")]
    started = Servers(file, project, [*command, "--env-file", str(file), "-p", project, *files])
    for name, value in (read_environment(file) | {"PREFECT_HOME": str(tmp_path / "prefect")}).items():
        monkeypatch.setenv(name, value)
    try:
        started.shell("docker compose up -d")
        started.wait()
        yield started
    finally:
        started.shell("docker compose down -v")


class Nightly:
    """A deployment with an interval schedule, whose edge list lies in the bucket."""

    def __init__(self) -> None:
        user, _, password = os.environ["PREFECT_API_AUTH_STRING"].partition(":")
        self.api = os.environ["PREFECT_API_URL"].replace("://", f"://{quote(user)}:{quote(password, safe='')}@")
        self.id, self._seen = "", set[str]()

    def deploy(self, file: Path) -> None:
        arguments = ["deploy", "node2vec", "--name", "nightly", *SOURCES, *SETTINGS, "--interval", "15s", "--json",
                     "--gate", "evaluate.macro_f1>=0.5", "--tolerance", "0.1", "--servers", str(file)]  # fmt: skip
        done = subprocess.run([sys.executable, "-m", "superworkflow", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert PASSWORD not in done.stdout
        self.id = json.loads(done.stdout)["id"]

    def scheduled(self) -> str:
        """Id of the next run that the schedule starts, once it has begun; the schedule rests from then on."""

        def begun() -> dict[str, Any] | None:
            new = [each for each in self._runs() if each["auto_scheduled"] and each["id"] not in self._seen]
            return next((each for each in new if each["run_count"]), None)  # not one that was cancelled for another

        run = eventually(begun, LONG)
        ask("POST", f"{self.api}/deployments/{self.id}/pause_deployment").raise_for_status()
        self._seen |= {each["id"] for each in self._runs()}
        return str(run["id"])

    def _runs(self) -> list[dict[str, Any]]:
        sought = {"deployments": {"id": {"any_": [self.id]}}, "sort": "EXPECTED_START_TIME_ASC"}
        found: list[dict[str, Any]] = ask("POST", f"{self.api}/flow_runs/filter", sought).json()
        return found

    def log(self, run: str) -> str:
        """Log of a run so far."""
        found = ask("POST", f"{self.api}/logs/filter", {"logs": {"flow_run_id": {"any_": [run]}}}).json()
        return "\n".join(each["message"] for each in found)

    def resume(self) -> None:
        ask("POST", f"{self.api}/deployments/{self.id}/resume_deployment").raise_for_status()

    def states(self, run: str, stage: str) -> list[str]:
        """States of a stage of a run, once for each time that the run was started."""
        found = ask("POST", f"{self.api}/task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}}).json()
        return sorted(each["state_name"] for each in found if each["name"] == stage)

    def places(self) -> int:
        """Number of runs that hold a slot of the deployment's concurrency limit."""
        return int(ask("GET", f"{self.api}/deployments/{self.id}").json()["global_concurrency_limit"]["active_slots"])

    def ended(self, run: str, state: str, starts: int = 1) -> str:
        """Wait for a run to end in this state after this number of starts; returns its log."""

        def over() -> dict[str, Any] | None:
            found: dict[str, Any] = ask("GET", f"{self.api}/flow_runs/{run}").json()
            return found if found["state_type"] in ("COMPLETED", "FAILED", "CANCELLED", "CRASHED") else None

        found = eventually(over, LONG)
        assert (found["state_name"], found["run_count"]) == (state, starts), found["state"]
        return str(found["state"]["message"])


def _wait_for_datasets(files: fsspec.AbstractFileSystem, stage: str, count: int) -> None:
    """Wait until a stage has this number of datasets: its run is then half-way."""

    def there() -> bool:
        files.invalidate_cache()
        return len(files.glob(f"superworkflow/store/{stage}/*/manifest.json")) == count

    eventually(there, LONG)


def _records(run: str) -> list[str]:
    """Statuses of MLflow's records of a flow run."""
    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    experiments = [each.experiment_id for each in client.search_experiments()]
    found = client.search_runs(experiments, f"tags.`superworkflow.flow_run_id` = '{run}'")
    return sorted(each.info.status for each in found)


def test_a_team_and_its_nights(servers: Servers, graph_files: tuple[Path, Path]) -> None:
    assert httpx.get(f"{os.environ['PREFECT_API_URL']}/work_pools/superworkflow").status_code == 401
    listed = f"{os.environ['MLFLOW_TRACKING_URI']}/api/2.0/mlflow/experiments/search?max_results=1"
    assert httpx.get(listed).status_code == 401

    files = fsspec.filesystem("s3", skip_instance_cache=True)
    edges = graph_files[0].read_text().splitlines(keepends=True)
    files.pipe_file(f"{FOLDER}/labels.csv", graph_files[1].read_bytes())
    files.pipe_file(f"{FOLDER}/edges.csv", "".join(edges).encode())
    nightly = Nightly()
    nightly.deploy(servers.file)
    first = nightly.scheduled()
    assert "version 1: promoted" in nightly.ended(first, "Completed")
    assert "vertices" in nightly.log(first)
    assert "compiling kernels" not in nightly.log(first)  # the image has brought them

    # A bad night, in which the servers that a run needs are restarted under it.
    chance, nodes = random.Random(1), sorted({node for line in edges[1:] for node in line.split(",")[0:1]})
    bad = "".join([edges[0], *(f"{u},{v}\n" for u, v in (chance.sample(nodes, 2) for _ in edges[1:]))])
    files.pipe_file(f"{FOLDER}/edges.csv", bad.encode())
    second = start_run(nightly.api, nightly.id)
    _wait_for_datasets(files, "index", 2)
    servers.shell("docker compose restart postgres s3 prefect mlflow")
    servers.wait()
    assert "gate evaluate.macro_f1>=0.5" in nightly.ended(second, "Failed")
    assert _records(second) == ["FINISHED"]

    # In the middle of the next one all services are stopped, their disks lost, and restored from a backup.
    files.pipe_file(f"{FOLDER}/edges.csv", "".join([edges[0], *edges[9:]]).encode())
    nightly.resume()
    third = nightly.scheduled()
    _wait_for_datasets(files, "index", 3)
    for line in re.findall(r"^#   (docker compose .*backup\.tar.*)$", (ROOT / "docker-compose.yml").read_text(), re.M):
        servers.shell(line)
    servers.wait()
    assert "version 3: promoted" in nightly.ended(third, "Completed", starts=2)
    assert "Cached" in nightly.states(third, "index")
    assert _records(third) == ["FINISHED", "KILLED"]
    registry = ModelRegistry(os.environ["MLFLOW_TRACKING_URI"])
    assert [each.version for each in registry.versions(MODEL)] == [3, 2, 1]
    assert nightly.places() == 0
    assert [_records(each) for each in (first, second)] == [["FINISHED"], ["FINISHED"]]
    assert main(["rollback", MODEL, "--why", "customers complain", "--servers", str(servers.file)]) == 0
    champion = registry.champion(MODEL)
    assert champion is not None
    assert champion.version == 1

    arguments = ["run", "node2vec", *SOURCES, *SETTINGS, "--json", "--servers", str(servers.file)]
    run = subprocess.run([sys.executable, "-m", "superworkflow", *arguments], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-4000:]
    assert {stage["state"] for stage in json.loads(run.stdout)["stages"]} == {"cached"}
    assert PASSWORD not in run.stdout + run.stderr

    assert "nightly" in httpx.get(f"{os.environ['SUPERWORKFLOW_DASHBOARD_URL']}/deployments", timeout=60).text
    assert httpx.get(f"http://127.0.0.1:{os.environ['OPTUNA_PORT']}/api/studies").status_code == 200
