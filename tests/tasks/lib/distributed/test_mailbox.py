"""Mailboxes of ranks: order, bytes of large messages, and a peer that is lost."""

import io
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from numpy.typing import NDArray

from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.engines.workers.group import Checkpoint
from superworkflow.infra.engines.workers.session import Role, local_group
from superworkflow.infra.engines.workers.worker import StateSaved, Worker
from superworkflow.tasks.lib.distributed.mailbox import _DOOR, Header, Mailbox
from tests.infra.engines.test_workers import members_of

RANKS, MESSAGES, LARGE = 3, 60, 9 << 20


def called(folder: Path, function: Any, *arguments: Any) -> tuple[list[Any], str]:
    progress = Progress("mailbox", stream=(log := io.StringIO()))
    with local_group([Role("worker", RANKS)], Checkpoint(folder / "kept"), progress, folder / "logs") as group:
        results = group.run(function, *arguments)
    assert not members_of(os.getpid())
    return results, log.getvalue()


def exchange(worker: Worker) -> dict[str, Any]:
    """Send every other rank numbered messages from two threads, one of them large, some empty, some of two arrays."""
    came: dict[int, list[tuple[int, int, int]]] = {}
    guard, faults = threading.Lock(), list[str]()

    def take(header: Header, message: NDArray[np.uint8]) -> None:
        sender, thread, number = header
        with guard:
            came.setdefault(sender, []).append((thread, number, len(message)))
            if not (message == (sender + number) % 251).all():
                faults.append(f"message {number} of {sender}")

    box = Mailbox(3, take, lambda error: faults.append(str(error)))

    def send(thread: int) -> None:
        for number in range(MESSAGES):
            value = (worker.rank + number) % 251
            size = LARGE if (thread, number) == (1, 7) else number % 5 * 1000
            halves = [np.full((size // 2, 1), value, np.uint8), np.full(size - size // 2, value, np.uint8)]
            for rank in range(worker.size):
                if rank != worker.rank:
                    box.send(rank, (worker.rank, thread, number), halves, "odd" if thread else "even")

    threads = [threading.Thread(target=send, args=(number,)) for number in range(2)]
    with box.running():
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    return {"came": {str(rank): each for rank, each in came.items()}, "faults": faults, "sent": box.sent,
            "messages": box.messages}  # fmt: skip


def test_messages_come_whole_and_in_the_order_of_their_sender(tmp_path):
    results, _ = called(tmp_path, exchange)
    usual = sum(number % 5 * 1000 for number in range(MESSAGES))
    for rank, found in enumerate(results):
        assert not found["faults"]
        assert found["messages"] == 2 * MESSAGES * (RANKS - 1)
        assert found["sent"] == {"even": 2 * usual, "odd": 2 * (usual - 7 % 5 * 1000 + LARGE)}
        assert sorted(found["came"]) == [str(other) for other in range(RANKS) if other != rank]
        for messages in found["came"].values():
            for thread in range(2):
                assert [number for which, number, _ in messages if which == thread] == list(range(MESSAGES))
            assert max(size for *_, size in messages) == LARGE


def exchange_among_strangers(worker: Worker) -> dict[str, Any]:
    """As `exchange`, but before the other ranks come three to each door that do not know its token."""
    gather = dist.all_gather

    def gathered(doors: list[Any], own: Any, group: Any) -> None:
        gather(doors, own, group=group)
        host, port, token = _DOOR.unpack(bytes(own.tolist()))
        address, number = (host.rstrip(b"\0").decode(), port), (worker.rank + 1).to_bytes(8, "little")
        for greeting in (
            b"",
            token[:-1] + bytes([token[-1] ^ 1]) + number,
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + number,
        ):
            with socket.create_connection(address) as stranger:
                stranger.sendall(greeting)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_gather", gathered)
        return exchange(worker)


def test_strangers_are_not_let_in(tmp_path):
    results, _ = called(tmp_path, exchange_among_strangers)
    for rank, found in enumerate(results):
        assert not found["faults"]
        assert sorted(found["came"]) == [str(other) for other in range(RANKS) if other != rank]


def lose_a_peer(worker: Worker, mark: str) -> int:
    """The last rank ends, once, when it has got a message; the others learn of it without having sent it anything."""
    lost, got = threading.Event(), threading.Event()
    errors = list[BaseException]()

    def fail(error: BaseException) -> None:
        errors.append(error)
        lost.set()

    box = Mailbox(1, lambda header, message: got.set(), fail)
    with box.running():
        if worker.rank == 0:
            box.send(worker.size - 1, (5,), [], "none")
        if Path(mark).exists():
            return 1
        if worker.rank == worker.size - 1:
            assert got.wait(60)
            Path(mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        assert lost.wait(60)
        raise errors[0]


def test_a_lost_peer_ends_the_waiting_of_all(tmp_path):
    results, log = called(tmp_path, lose_a_peer, str(tmp_path / "mark"))
    assert results == [1] * RANKS
    assert "rank 2 of role worker" in log
    assert "all workers start again" in log


def stop(worker: Worker) -> str:
    """All ranks leave with an error that ends mailboxes alike: what was sent has come by then."""
    came = list[int]()
    box = Mailbox(1, lambda header, message: came.append(len(message)), lambda error: None)
    try:
        with box.running((StateSaved,)):
            box.send((worker.rank + 1) % worker.size, (0,), [np.zeros(LARGE, np.uint8)], "last")
            raise StateSaved
    except StateSaved:
        dist.barrier()
        return str(came)


def test_what_was_sent_before_the_end_comes(tmp_path):
    results, _ = called(tmp_path, stop)
    assert results == [f"[{LARGE}]"] * RANKS
