"""Triggers and notifications of deployments, on a real Prefect server and a web server that receives the calls."""

import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from superworkflow.infra.orchestration.pending_timeout import PENDING_TIMEOUT, set_pending_timeout
from tests.flows.deployments import ask, cancel_run, eventually, start_run, wait_for_state
from tests.flows.nightly import Nights, nights
from tests.s3_proxy import S3Proxy


class Hook:
    """A web server that keeps what is posted to it."""

    def __init__(self) -> None:
        heard: list[dict[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.headers["Content-Type"] == "application/json"
                heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *given: Any) -> None:
                """Say nothing."""

        self.heard = heard
        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def hook() -> Iterator[Hook]:
    """A web server that keeps the calls it receives."""
    made = Hook()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(scope="module")
def night(proxy: S3Proxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nights]:
    """A process that registers and runs deployments."""
    folder = tmp_path_factory.mktemp("triggers")
    with nights(f"{proxy.url}/api", {"MLFLOW_TRACKING_URI": "", "PREFECT_HOME": str(folder)}) as found:
        yield found


@pytest.fixture(scope="module")
def proxy(prefect_api: str) -> Iterator[S3Proxy]:
    """Through which that process reaches the server."""
    made = S3Proxy("127.0.0.1", urlsplit(prefect_api).port or 0)
    yield made
    made.close()


def _arguments(folder: Path, name: str) -> list[str]:
    edges = folder / "edges.csv"
    if not edges.exists():
        edges.write_text("a,b\nb,c\n")
    return ["node2vec", "--name", name, "--edges", str(edges), "--store", str(folder / "store")]


def test_word_of_runs_that_want_a_person(
    night: Nights, hook: Hook, proxy: S3Proxy, prefect_api: str, tmp_path: Path
) -> None:
    """The states are set as a run sets them; the server's automation does the rest."""
    given = _arguments(tmp_path, "notified")
    deployment = night.deploy(*given, "--notify", hook.url)
    assert night.deploy(*given) == deployment, "without --notify it stays as it is"

    def ended(name: str, kind: str) -> str:
        run = start_run(prefect_api, deployment)
        if name == "Rejected":
            ask("PATCH", f"{prefect_api}/flow_runs/{run}", {"tags": ["rejected"]}).raise_for_status()
        state = {"type": kind, "name": "Failed" if name == "Rejected" else name, "message": f'for "{name}"'}
        ask("POST", f"{prefect_api}/flow_runs/{run}/set_state", {"state": state, "force": True}).raise_for_status()
        return run

    ended("Completed", "COMPLETED")
    expected = {
        name: ended(name, kind) for name, kind in (("Rejected", "FAILED"), ("Failed", "FAILED"), ("Late", "SCHEDULED"))
    }
    eventually(lambda: len(hook.heard) >= 3, seconds=120)
    assert {each["state"]: each["flow_run_id"] for each in hook.heard} == expected
    for each in hook.heard:
        assert (each["deployment"], each["message"]) == ("notified", f'for "{each["state"]}"')
        assert each["text"].startswith("notified: ")
        assert each["url"] == f"{proxy.url}/runs/flow-run/{each['flow_run_id']}"
    named = {"automations": {"name": {"any_": ["superworkflow node2vec/notified"]}}}
    (automation,) = ask("POST", f"{prefect_api}/automations/filter", named).json()
    assert hook.url not in json.dumps(automation), "a webhook's address may be a secret"
    night.deploy(*given, "--notify", "none")
    assert ask("POST", f"{prefect_api}/automations/filter", named).json() == []


def test_a_run_that_stays_pending_frees_its_slot(night: Nights, hook: Hook, prefect_api: str, tmp_path: Path) -> None:
    """Its worker has claimed it and died: the next ones would be cancelled for ever."""
    made = night.registered(*_arguments(tmp_path, "stuck"), "--cron", "0 2 * * *", "--notify", hook.url)
    named = {"automations": {"name": {"any_": ["superworkflow node2vec/stuck pending"]}}}
    (automation,) = ask("POST", f"{prefect_api}/automations/filter", named).json()
    assert automation["trigger"]["within"] == PENDING_TIMEOUT["process"].total_seconds()
    with temporary_settings({PREFECT_API_URL: prefect_api}), get_client(sync_client=True) as client:
        set_pending_timeout(client, "node2vec/stuck", [UUID(made["id"])], timedelta(seconds=10))

    def claim() -> tuple[str, str]:
        run = start_run(prefect_api, made["id"])
        state = {"state": {"type": "PENDING", "name": "Pending"}}
        answer = ask("POST", f"{prefect_api}/flow_runs/{run}/set_state", state).json()
        return run, answer["state"]["name"]

    stuck, state = claim()
    assert state == "Pending"
    assert claim()[1] == "Cancelled"
    found = wait_for_state(prefect_api, stuck, "Crashed")
    assert "claimed and did not start within" in found["state"]["message"]
    assert claim()[1] == "Pending"
    eventually(lambda: [each for each in hook.heard if each["flow_run_id"] == stuck], seconds=60)
    night.deploy(*_arguments(tmp_path, "stuck"), "--notify", "none")


@pytest.mark.parametrize("more", [(), ("--when-changed",)], ids=["deployment", "watcher"])
def test_a_backlog_of_nights_is_one_run(night: Nights, prefect_api: str, tmp_path: Path, more: tuple[str, ...]) -> None:
    """No worker was there for a month: the first run does the work of all that were due."""
    name = "watched-nights" if more else "nights"
    made = night.registered(*_arguments(tmp_path, name), "--cron", "0 2 * * *", "--collisions", "wait", *more)
    deployment, now = made["watcher"] or made["id"], datetime.now(UTC)
    body = {"start_time": (now - timedelta(days=31)).isoformat(), "min_runs": 33}
    ask("POST", f"{prefect_api}/deployments/{deployment}/schedule", body).raise_for_status()

    def states() -> tuple[Counter[str], Counter[str]]:
        """States of the runs that were due, and of the others."""
        due, others = Counter[str](), Counter[str]()
        chosen = {"deployments": {"id": {"any_": [deployment]}}}
        for run in ask("POST", f"{prefect_api}/flow_runs/filter", chosen).json():
            was_due = datetime.fromisoformat(run["expected_start_time"]) <= now
            (due if was_due else others)[run["state_name"]] += 1
        return due, others

    before, coming = states()
    assert before.total() == 31
    assert before.keys() <= {"Scheduled", "Late"}  # as the server marks them after a while
    mine = [start_run(prefect_api, deployment)]
    if not more:
        mine.append(start_run(prefect_api, deployment, {"node2vec": {"link_prediction": False}}))
    shutil.rmtree(tmp_path / "store", ignore_errors=True)
    (tmp_path / "store").touch()  # no stage is to run here
    assert night(deployment)["state_name"] == ("Waits" if more else "Failed")
    after, others = states()
    assert after == {"Skipped": 31}
    assert others["Scheduled"] >= coming["Scheduled"] + len(mine)
    for run in mine:
        assert ask("GET", f"{prefect_api}/flow_runs/{run}").json()["state_name"] == "Scheduled"


def test_a_run_starts_when_a_source_has_been_written(
    night: Nights, proxy: S3Proxy, prefect_api: str, tmp_path: Path
) -> None:
    """Also through a server that answers 500 for a while, and breaks all connections, in the middle of a run."""
    given = _arguments(tmp_path, "watched")
    made = night.registered(*given, "--when-changed", "--interval", "1d", "--pause")
    watcher = ask("GET", f"{prefect_api}/deployments/{made['watcher']}").json()
    assert watcher["name"] == "watched"
    assert [each["schedule"]["interval"] for each in watcher["schedules"]] == [86_400]
    assert ask("GET", f"{prefect_api}/deployments/{made['id']}").json()["schedules"] == []

    def runs() -> list[dict[str, Any]]:
        chosen = {"deployments": {"id": {"any_": [made["id"]]}}, "sort": "START_TIME_DESC"}
        found: list[dict[str, Any]] = ask("POST", f"{prefect_api}/flow_runs/filter", chosen).json()
        return found

    def look(quiet_s: float = 0.0) -> tuple[str, str]:
        state = night(made["watcher"], {"quiet_s": quiet_s})["state"]
        return state["name"], state["message"]

    assert look(3600.0)[0] == "Waits", "the file has just been written"
    proxy.trip = (b"/set_state", "broken", 1.0)
    assert look()[0] == "Started"
    assert proxy.tripped.is_set()
    (first,) = runs()
    assert look()[0] == "Unchanged"
    edges = tmp_path / "edges.csv"
    edges.write_text("a,b\nb,d\n")
    os.utime(edges, (1e9, 1e9))  # another time, also where clocks are coarse
    assert look() == ("Waits", "sources have been written, and a run is in progress")
    cancel_run(prefect_api, first["id"])
    state = {"type": "CANCELLED", "name": "Cancelled"}
    ask("POST", f"{prefect_api}/flow_runs/{first['id']}/set_state", {"state": state, "force": True}).raise_for_status()
    assert look()[0] == "Started"
    assert len(runs()) == 2
    assert not (tmp_path / "store").joinpath("index").exists(), "nothing but looking has been done here"

    edges.unlink()
    name, message = look()
    assert name == "Failed"
    assert "no such file" in message
    edges.write_text("a,b\nb,d\n")
    assert night.registered(*given)["watcher"] == ""
    assert ask("GET", f"{prefect_api}/deployments/{made['watcher']}").status_code == 404
