"""Flow runs of deployments, started, watched and cancelled by the server's API, and the workers that run them."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx


@contextlib.contextmanager
def running_worker(pool: str, kind: str, folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """A real worker of a pool, with a home of its own; its log is shown when the test fails."""
    folder.mkdir()
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--type", kind]
    with (folder / "log").open("w") as log:
        given = os.environ | environment | {"PREFECT_HOME": str(folder)}
        process = subprocess.Popen(command, env=given, stdout=log, stderr=log, cwd=folder, start_new_session=True)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:  # it still watches a run that was cancelled
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            print((folder / "log").read_text()[-8000:])  # noqa: T201


def ask(method: str, url: str, body: dict[str, Any] | None = None) -> httpx.Response:
    """The server's answer; asked again while its database is busy, and, where that changes nothing, if none came."""
    for _ in range(20):
        try:
            answer = httpx.request(method, url, json=body, timeout=60)
        except httpx.TimeoutException:
            if method not in ("GET", "PATCH") and not url.endswith("/filter"):
                raise
            continue
        if answer.status_code != 503:
            break
        time.sleep(1)
    return answer


def start_run(api: str, deployment: str, parameters: dict[str, Any] | None = None) -> str:
    """Start a flow run as the "Run" button does; its id."""
    answer = ask("POST", f"{api}/deployments/{deployment}/create_flow_run", {"parameters": parameters or {}})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def cancel_run(api: str, run: str) -> None:
    """Cancel a flow run as its page does."""
    state = {"type": "CANCELLING", "name": "Cancelling"}
    ask("POST", f"{api}/flow_runs/{run}/set_state", {"state": state}).raise_for_status()


def wait_for_state(api: str, run: str, name: str) -> dict[str, Any]:
    """The flow run, once it has ended as it should."""

    def ended() -> dict[str, Any] | None:
        found: dict[str, Any] = ask("GET", f"{api}/flow_runs/{run}").json()
        return found if found["state_type"] in ("COMPLETED", "FAILED", "CANCELLED", "CRASHED") else None

    found = eventually(ended)
    assert found["state_name"] == name, found["state"]
    return found


def task_states(api: str, run: str) -> dict[str, str]:
    """Name of the state of each task of a flow run."""
    found = ask("POST", f"{api}/task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}}).json()
    return {each["name"]: each["state_name"] for each in found}


def assert_tasks(api: str, run: str, expected: Mapping[str, str]) -> None:
    """The states of a flow run's tasks, which the server records a little after they are reached."""
    eventually(lambda: set(task_states(api, run).values()) <= {"Completed", "Cached", "Failed", "Crashed", "Cancelled"})
    with contextlib.suppress(AssertionError):
        eventually(lambda: task_states(api, run) == expected, seconds=20)
    assert task_states(api, run) == expected


def eventually(condition: Callable[[], Any], seconds: float = 560) -> Any:
    """The condition's first true value."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.5)
    raise AssertionError("it did not come about")
