"""A member of a group: of a fixed role, torchrun's elastic agent, which starts the workers, watches and restarts them.

The agent has torch imported and computes nothing, so that its workers are forked from it and need not import anything
again. A member of an elastic role does its tasks itself, and never imports torch.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from superworkflow.infra.engines.lifeline import STAGE_GONE, end_with_parent, follow_lifeline
from superworkflow.infra.engines.termination_message import leave_message
from superworkflow.infra.engines.workers.channel import Keys
from superworkflow.infra.engines.workers.elastic_member import do_tasks, leave_on_sigterm
from superworkflow.infra.engines.workers.setup import (
    MemberSetup,
    end_with_stdin,
    read_setup,
    setup_from_environment,
)

LIFELINE_SECONDS = 1.0
"""Seconds for the end of the stage's process to be noticed, where another connection to it fails first."""


def main() -> int:
    """Take part in the group that standard input describes, until it ends."""
    setup = read_setup()
    if setup.elastic:
        leave_on_sigterm()
    if setup.parent:
        end_with_parent(setup.parent)
    end_with_stdin()
    if setup.path:
        sys.path[:] = setup.path
    return do_tasks(setup) if setup.elastic else run_agent(setup)


def join(arguments: Sequence[str]) -> int:
    """The command of pods: take part in the group that the environment describes, until it ends."""
    setup = setup_from_environment()
    if setup.elastic:
        leave_on_sigterm()
    follow_lifeline(setup.host, setup.store_port, _end_without_stage)
    try:
        status = do_tasks(setup) if setup.elastic else run_agent(setup)
    except Exception:
        time.sleep(LIFELINE_SECONDS)
        raise
    finally:
        leave_message()
    _end(status)


def _end_without_stage() -> NoReturn:
    try:
        leave_message()
    finally:
        os._exit(STAGE_GONE)


def _end(status: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # taking torch down again takes as long as all the rest


def run_agent(setup: MemberSetup) -> int:
    """Run the workers of one member to their end; the exit status."""
    from torch.distributed.elastic.agent.server.api import WorkerSpec
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.api import logger

    from superworkflow.infra.engines.workers.lost_ranks import ReportingAgent
    from superworkflow.infra.engines.workers.rank import work
    from superworkflow.infra.engines.workers.rendezvous import join_store, rendezvous_handler

    for each in (logger, logging.getLogger("torch.multiprocessing.spawn")):
        each.addFilter(_without_torch_lines)
    store = join_store(setup.host, setup.store_port)
    handler = rendezvous_handler(store, socket.gethostname(), setup.agents, Keys.of(setup.token).rendezvous)
    spec = WorkerSpec(
        role=setup.role, local_world_size=setup.count, rdzv_handler=handler, entrypoint=work, args=(setup, os.getpid()),
        max_restarts=sys.maxsize,  # the coordinator counts them, for the whole group
    )  # fmt: skip
    # The drivers of GPUs do not survive a fork; without them this process has no threads that a fork would lose.
    start = "spawn" if setup.gpus else "fork"
    agent = ReportingAgent(setup, spec, DefaultLogsSpecs(log_dir=setup.logs), start_method=start)
    result = agent.run()
    return int(result is None or result.is_failed())


def _without_torch_lines(record: logging.LogRecord) -> bool:
    """Leave out that workers have ended, which `ReportingAgent` reports to the coordinator, and stacks."""
    record.exc_info = None
    return not record.getMessage().startswith(("failed (exitcode", "Terminating process", "Sending process"))


if __name__ == "__main__":
    _end(main())
