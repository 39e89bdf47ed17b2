"""Reports of lost ranks: the agent that started them sends the coordinator how they ended."""

from __future__ import annotations

import signal
import socket
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

from superworkflow.infra.engines.workers.channel import Keys
from superworkflow.infra.engines.workers.rank import PEER_LOST
from superworkflow.infra.engines.workers.setup import MemberSetup
from superworkflow.infra.engines.workers.worker import Link


class ReportingAgent(LocalElasticAgent):
    """An agent of torchrun that reports lost ranks, except those that ended because of others.

    Args:
        setup: setup of this agent.
        given, options: see `LocalElasticAgent`.
    """

    def __init__(self, setup: MemberSetup, *given: Any, **options: Any):
        super().__init__(*given, **options)
        self._setup = setup

    def _monitor_workers(self, worker_group: Any) -> RunResult:
        result: RunResult = super()._monitor_workers(worker_group)
        if result.state is WorkerState.FAILED:
            # Of several that have ended torch names one, and then ends the rest by SIGTERM.
            named = {failure.pid: failure.exitcode for failure in result.failures.values()}
            ended = {each.pid: each.exitcode for each in self._pcontext._pc.processes}  # type: ignore[union-attr]
            others = {pid: code for pid, code in ended.items() if code not in (None, 0, -signal.SIGTERM)}
            places = {each.id: self._setup.offset + each.role_rank for each in worker_group.workers}
            for pid, code in (others | named).items():
                if code != PEER_LOST:
                    self._report(places[pid], pid, code)
        return result

    def _report(self, rank: int, pid: int, code: int) -> None:
        link = Link(self._setup.address, Keys.of(self._setup.token))  # closed before workers are forked again
        about = {"rank": rank, "role": self._setup.role, "host": socket.gethostname(), "pid": pid, "code": code}
        link.send({"kind": "gone", **about})
        link.close()
