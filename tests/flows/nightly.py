"""A deployment night after night in one process: as Prefect's runner runs it, without the start of a process each time.

python -m tests.flows.nightly    # a JSON list by line on standard input: arguments of `deploy`, or ids of flow runs
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.flows.deployments import ask, start_run


class Nights:
    """Runs a deployment night after night.

    Args:
        api: URL of the server.
        process: of this module.
    """

    def __init__(self, api: str, process: subprocess.Popen[str]):
        self._api, self._process = api, process

    def deploy(self, *arguments: str) -> str:
        """Register a deployment; its id."""
        return str(self.registered(*arguments)["id"])

    def registered(self, *arguments: str) -> dict[str, Any]:
        """Register a deployment; the document of `deploy`."""
        return self._ask(["deploy", *arguments, "--json"])

    def __call__(self, deployment: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """Start a run as a schedule or a person does, and wait for its end; the flow run as the server has it."""
        run = start_run(self._api, deployment, parameters)
        assert self._ask(["run", run]) == {"ended": run}
        found: dict[str, Any] = ask("GET", f"{self._api}/flow_runs/{run}").json()
        return found

    def _ask(self, words: list[str]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@contextmanager
def nights(api: str, environment: Mapping[str, str]) -> Iterator[Nights]:
    """A process that runs deployments of node2vec."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__], env=os.environ | {"PREFECT_API_URL": api} | dict(environment),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        with process:
            yield Nights(api, process)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(60) == 0
    finally:
        process.kill()


def main() -> None:
    """Run what standard input names."""
    from prefect.client.orchestration import get_client
    from prefect.flow_engine import run_flow

    from superworkflow import deployed
    from superworkflow.__main__ import main as command_line

    for line in sys.stdin:
        words = json.loads(line)
        if words[0] == "deploy":
            assert command_line(words) == 0
        else:
            with get_client(sync_client=True) as client:
                flow_run = client.read_flow_run(words[1])
                assert flow_run.deployment_id is not None
                entrypoint = client.read_deployment(flow_run.deployment_id).entrypoint or ""
            flow = getattr(deployed, entrypoint.rpartition(".")[2])
            run_flow(flow, flow_run=flow_run, parameters=flow_run.parameters, return_type="state")
            print(json.dumps({"ended": words[1]}))  # noqa: T201
        sys.stdout.flush()


if __name__ == "__main__":
    main()
