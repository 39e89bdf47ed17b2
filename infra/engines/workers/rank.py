"""A worker of a fixed role: one rank of torch.distributed, which does what the coordinator calls for."""

from __future__ import annotations

import datetime
import os
import signal
import socket
import traceback
from typing import Any

import torch
import torch.distributed as dist

from superworkflow.infra.engines.lifeline import end_with_parent
from superworkflow.infra.engines.workers.channel import Keys
from superworkflow.infra.engines.workers.rendezvous import ROUND_VARIABLE, join_store
from superworkflow.infra.engines.workers.setup import INTERFACE_VARIABLE, LOOPBACK, MemberSetup
from superworkflow.infra.engines.workers.worker import Link, Worker, outcome_of
from superworkflow.infra.process.threads import limit_numba

COLLECTIVE_TIMEOUT = datetime.timedelta(days=1)
"""Timeout of collectives: ranks may compute for hours in between, and the coordinator finds those that hang."""
PEER_LOST = 75
"""Exit status of a worker that lost a peer; its agent restarts it."""


def work(setup: MemberSetup, agent: int) -> None:
    """Be one rank until the coordinator ends the group.

    Args:
        setup: of the agent that started this process.
        agent: its process.
    """
    end_with_parent(agent)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # not the agent's handlers
    limit_numba(setup.threads)
    torch.set_num_threads(setup.threads)
    local = int(os.environ["LOCAL_RANK"])
    if setup.gpus:
        torch.cuda.set_device(setup.first_gpu + local * setup.gpus)
    role_rank = int(os.environ["ROLE_RANK"])
    rank, size, name = setup.offset + role_rank, int(os.environ["WORLD_SIZE"]), os.environ[ROUND_VARIABLE]
    store = join_store(setup.host, setup.store_port, f"ranks/{name}")
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if setup.gpus else "gloo", store=store, rank=rank, world_size=size,
            timeout=COLLECTIVE_TIMEOUT,
        )  # fmt: skip
    except (RuntimeError, ValueError):
        traceback.print_exc()
        os._exit(PEER_LOST)
    link = Link(setup.address, Keys.of(setup.token))
    worker = Worker(
        link, role=setup.role, rank=rank, size=size, role_rank=role_rank,
        role_size=int(os.environ["ROLE_WORLD_SIZE"]), threads=setup.threads,
        device=f"cuda:{torch.cuda.current_device()}" if setup.gpus else "cpu",
    )  # fmt: skip
    link.greet(worker.introduction(name))
    while (call := link.next_call()) is not None:
        outcome = outcome_of(worker, call, is_lost=peer_is_lost)
        link.send(outcome)
        if outcome["kind"] == "lost":
            link.close()
            os._exit(PEER_LOST)
    link.close()
    dist.destroy_process_group()


def own_address() -> tuple[socket.AddressFamily, str]:
    """Family and address by which other ranks reach this one, as Gloo takes them."""
    name = LOOPBACK if os.environ.get(INTERFACE_VARIABLE) == "lo" else socket.gethostname()
    family, _, _, _, address = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)[0]
    return family, str(address[0])


def peer_is_lost(error: BaseException) -> bool:
    """True if an error says that another rank has gone, rather than that the function is wrong.

    Gloo and NCCL raise plain RuntimeErrors, which name their source files.
    """
    text = str(error).lower()
    of_gloo: Any = isinstance(error, RuntimeError) and ("gloo" in text or "nccl" in text or "closed by peer" in text)
    return bool(of_gloo or isinstance(error, dist.DistError))
