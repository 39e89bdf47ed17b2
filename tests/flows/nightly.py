"""Flow runs of a deployment, one after the other in one process: as Prefect's runner does it, without its start.

python -m tests.flows.nightly    # an id of a flow run by line on standard input; answers each when it has ended
"""

from __future__ import annotations

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

    def __call__(self, deployment: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """Start a run as a schedule or a person does, and wait for its end; the flow run as the server has it."""
        run = start_run(self._api, deployment, parameters)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{run}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer == f"{run}\n", f"it ended instead of {run}: {answer}"
        found: dict[str, Any] = ask("GET", f"{self._api}/flow_runs/{run}").json()
        return found


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

    flow = deployed.node2vec
    for line in sys.stdin:
        with get_client(sync_client=True) as client:
            flow_run = client.read_flow_run(line.strip())  # type: ignore[arg-type]
        run_flow(flow, flow_run=flow_run, parameters=flow_run.parameters, return_type="state")
        print(line.strip(), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
