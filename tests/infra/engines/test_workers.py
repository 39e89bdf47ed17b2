"""Worker groups as processes of this machine: who is called, who is let in, and what becomes of lost ones."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq

from superworkflow.infra.base.errors import StagedUserError, UserError
from superworkflow.infra.contract.progress import Progress, parse_event
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.engines.lifeline import STAGE_GONE
from superworkflow.infra.engines.workers import TOKEN_VARIABLE
from superworkflow.infra.engines.workers.channel import HEADER_BYTES, Keys, Server, connect, encoded
from superworkflow.infra.engines.workers.errors import WorkersFailed
from superworkflow.infra.engines.workers.group import Checkpoint
from superworkflow.infra.engines.workers.session import Role, local_group
from superworkflow.infra.engines.workers.setup import CHANNEL_PORT, SETUP_VARIABLE, STORE_PORT
from superworkflow.infra.engines.workers.worker import ElasticWorker, Worker, outcome_of
from superworkflow.infra.launch.run_stage import Executed, execute
from superworkflow.infra.storage.manifest import CHECKPOINT_FOLDER
from superworkflow.infra.storage.store import Store
from tests import toy_workers

OURS = Keys.of("token of these tests")
SOON = 120.0
"""Seconds within which things happen that take one or two on a machine that is not busy."""


class RecordedProgress(Progress):
    """Keeps all events, and passes each to a function."""

    def __init__(self, on_event: Callable[[dict[str, Any]], None] = lambda event: None):
        super().__init__("toy")
        self.events: list[dict[str, Any]] = []
        self._on_event = on_event

    def update(self, done: float, total: float, unit: str, **facts: Any) -> None:
        self.emit("progress", done=done, total=total, unit=unit, facts=facts)  # each, not two in a second

    def emit(self, event: str, **fields: Any) -> None:
        self.events.append({"event": event, **fields})
        self._on_event(self.events[-1])

    @property
    def log_text(self) -> str:
        return "\n".join(each["message"] for each in self.events if each["event"] == "log")


def members_of(process: int) -> list[psutil.Process]:
    """Agents of a process and their workers."""
    found = []
    for each in psutil.Process(process).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended
            found += [each] if "workers.agent" in str(each.cmdline()) else []
    return found


def await_that(holds: Callable[[], bool]) -> None:
    """Wait for a condition."""
    until = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.fixture
def nobody_left() -> Iterator[None]:
    """No member of a group of this process outlives the test."""
    yield
    assert members_of(os.getpid()) == []


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server("127.0.0.1", OURS)
    yield made
    made.close()


def _hello(server: Server, keys: Keys, header: Any = None, text: bytes | None = None) -> zmq.Context[Any]:
    context: zmq.Context[Any] = zmq.Context()
    socket = connect(context, f"tcp://127.0.0.1:{server.port}", keys)
    socket.send_multipart([text if text is not None else encoded(header), b""])
    return context


def test_only_who_has_the_groups_keys_is_heard(server: Server) -> None:
    stranger, secret = zmq.curve_keypair()
    wrong = replace(OURS, member=stranger, member_secret=secret)
    without: zmq.Context[Any] = zmq.Context()
    plain = without.socket(zmq.DEALER)
    plain.connect(f"tcp://127.0.0.1:{server.port}")
    plain.send_multipart([b'{"kind": "stranger"}', b""])
    contexts = [_hello(server, wrong, {"kind": "stranger"}), _hello(server, OURS, {"kind": "member"})]
    heard: list[Any] = []
    await_that(lambda: bool(heard.extend(m.header for m in server.receive(0.1)) or heard))
    heard += [message.header for message in server.receive(1)]
    assert heard == [{"kind": "member"}]
    for context in (without, *contexts):
        context.destroy(linger=0)


def test_what_is_no_message_is_passed_over(server: Server) -> None:
    texts = [b"{", b"[1]", b"\xff", b"[" * 100_000, b'{"kind": "member"}']
    contexts = [_hello(server, OURS, text=text) for text in texts]
    heard: list[Any] = []
    await_that(lambda: bool(heard.extend(m.header for m in server.receive(0.1)) or heard))
    assert heard == [{"kind": "member"}]
    for context in contexts:
        context.destroy(linger=0)


class _NoLink:
    def send(self, header: Any, payload: bytes = b"") -> None: ...


def _outcome(function: str, *arguments: Any) -> dict[str, Any]:
    worker = Worker(_NoLink(), role="r", rank=0, size=1, role_rank=0, role_size=1, threads=1)  # type: ignore[arg-type]
    return outcome_of(worker, {"call": 3, "function": f"{__name__}:{function}", "arguments": list(arguments)})


def give_back(worker: Worker, size: int) -> Any:
    if size < -1:
        sys.exit(0)
    if size < 0:
        raise UserError("too few", where="size", value=size)
    return object() if size == 0 else "x" * size


def test_results_are_small_json_and_errors_name_their_function() -> None:
    assert _outcome("give_back", 2) == {"kind": "result", "call": 3, "value": "xx"}
    large, odd, bad = _outcome("give_back", HEADER_BYTES), _outcome("give_back", 0), _outcome("give_back", -1)
    assert large["user"]
    assert "give_back: a worker's function returned too much" in large["message"]
    assert odd["user"]
    assert "what is not JSON" in odd["message"]
    assert bad == {"kind": "failed", "call": 3, "user": True, "message": "size: too few (got -1)."}
    assert _outcome("give_back", -2)["message"] == "SystemExit: 0"
    assert _outcome("no_such")["message"].startswith("AttributeError")


def test_a_state_that_no_member_has_signed_is_not_unpickled() -> None:
    from torch.distributed.elastic.rendezvous import RendezvousStateError

    from superworkflow.infra.engines.workers.rendezvous import SignedBackend

    class Backend:
        name, state = "memory", b""

        def get_state(self) -> Any:
            return (self.state, 1) if self.state else None

        def set_state(self, state: bytes, token: Any = None) -> Any:
            self.state = state
            return state, 1, True

    backend = Backend()
    ours, theirs = (SignedBackend(backend, key) for key in (b"ours", b"theirs"))  # type: ignore[arg-type]
    assert ours.get_state() is None
    assert ours.set_state(b"state") == (b"state", 1, True)
    assert ours.get_state() == (b"state", 1)
    for written in (b"state", b"", backend.state + b".", b"x" + backend.state):
        backend.state = written or b"s"
        with pytest.raises(RendezvousStateError):
            ours.get_state()
    theirs.set_state(b"state")
    with pytest.raises(RendezvousStateError):
        ours.get_state()


def _group(tmp_path: Path, roles: list[Role], progress: Progress, **options: Any) -> Any:
    return local_group(roles, Checkpoint(tmp_path / "checkpoint"), progress, tmp_path / "logs", **options)


def test_every_rank_is_called_and_answers(tmp_path: Path, nobody_left: None) -> None:
    roles, progress = [Role("graph", 1, threads=2), Role("tensor", 2)], RecordedProgress()
    with _group(tmp_path, roles, progress) as group:
        found = group.run(toy_workers.meet, {"a": [1, 0.1]})
        again = group.run(toy_workers.meet, None)
        with pytest.raises(ValueError, match="module-level function"):
            group.run(lambda worker: None)
        with pytest.raises(StagedUserError, match="too few"):
            group.run(give_back, -1)
        with pytest.raises(WorkersFailed, match="has failed before"):
            group.run(toy_workers.meet, None)
    assert [(e["role"], e["rank"], e["role_rank"], e["role_size"]) for e in found] == [
        ("graph", 0, 0, 1), ("tensor", 1, 0, 2), ("tensor", 2, 1, 2),
    ]  # fmt: skip
    assert {e["ranks"] for e in found} == {3}
    assert {e["size"] for e in found} == {3}
    assert [e["threads"] for e in found] == [2, 1, 1]
    assert all(e["value"] == {"a": [1, 0.1]} for e in found)
    assert [e["process"] for e in again] == [e["process"] for e in found]  # they are the same processes


@pytest.mark.parametrize("victim", ["process", "agent"])
def test_a_lost_worker_is_replaced_and_work_goes_on_from_the_checkpoint(
    tmp_path: Path, nobody_left: None, victim: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def at_step(event: dict[str, Any]) -> None:
        if event["event"] == "progress" and event["done"] == 3 and targets:
            os.kill(targets.pop(), signal.SIGKILL)

    targets: list[int] = []
    progress = RecordedProgress(at_step)
    with _group(tmp_path, [Role("tensor", 2)], progress) as group:
        targets.append(group.run(toy_workers.meet, None)[1][victim])
        begun = group.run(toy_workers.wait_in_turn, 6, 0.1)
        assert set(begun) <= {3, 4, 5}
        assert not targets
        assert group.run(toy_workers.meet, "after")[1]["value"] == "after"
    lost = f"rank 1 of role tensor (host {os.uname().nodename}, process "
    assert progress.log_text.startswith("the agent of role tensor was lost: " if victim == "agent" else lost)
    assert "killed" in progress.log_text
    assert progress.log_text.count("lost") == 1
    assert "torch/" not in capfd.readouterr().err


@pytest.mark.slow
def test_a_worker_that_gives_no_sign_is_named_and_replaced_once(tmp_path: Path, nobody_left: None) -> None:
    """The second time it fails the call."""

    def at_step(event: dict[str, Any]) -> None:
        if event["event"] == "progress" and event["done"] in stops:
            stops.remove(event["done"])
            ranks = [each for each in members_of(os.getpid()) if each.ppid() != os.getpid()]
            stopped.append(max(ranks, key=lambda each: each.pid).pid)
            os.kill(stopped[-1], signal.SIGSTOP)

    stops, stopped = [2], list[int]()
    progress = RecordedProgress(at_step)
    with _group(tmp_path, [Role("graph", 1), Role("tensor", 2)], progress, silence_s=8) as group:
        assert set(group.run(toy_workers.wait_in_turn, 6, 0.1)) <= {1, 2}
        assert f"process {stopped[0]}) hangs: no sign for 8 s; it is replaced" in progress.log_text
        assert progress.log_text.count("process") == 1
        (tmp_path / "checkpoint" / "step").unlink()
        stops[:] = [2, 5]
        with pytest.raises(WorkersFailed, match=r"rank \d of role \w+ \(host .* hangs: no sign for 8 s") as raised:
            group.run(toy_workers.wait_in_turn, 1000, 0.1)
    assert f"process {stopped[2]}) hangs" in str(raised.value)


@pytest.mark.slow
def test_no_worker_outlives_a_coordinator_that_was_killed(tmp_path: Path) -> None:
    code = (
        "import json; from tests.infra.engines.test_workers import *\n"
        "progress = RecordedProgress(lambda event: print(json.dumps(event), flush=True))\n"
        "with local_group([Role('tensor', 2)], Checkpoint(Path(sys.argv[1])), progress, Path(sys.argv[1])) as group:\n"
        "    group.run(toy_workers.wait_in_turn, 100_000, 0.1)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as stage:
        assert stage.stdout is not None
        assert '"progress"' in stage.stdout.readline()
        members = members_of(stage.pid)
        assert len(members) == 3
        members[-1].suspend()  # nor one that could not hear of it
        stage.kill()
    _, alive = psutil.wait_procs(members, timeout=SOON)
    assert alive == []


_STAGE = """
import os, signal, sys
from tests.infra.engines.test_workers import *
from superworkflow.infra.engines.workers.session import pod_group
roles = [Role("graph", 2), Role("tensor", 1, most=2)]
with pod_group("127.0.0.9", sys.argv[1], roles, Checkpoint(Path(sys.argv[2])), RecordedProgress()) as group:
    assert list(group.role("tensor").map(give_item, [5])) == [5]
    assert group.run(give_back, 1) == ["x", "x"]
    if sys.argv[3] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
os._exit(0)
"""
_POD = "import superworkflow.infra.engines.workers.agent as pod; pod.leave_message = lambda: None; pod.join([])"


def give_item(worker: ElasticWorker, item: int) -> int:
    """The item."""
    return item


@pytest.mark.slow
@pytest.mark.parametrize("end", ["well", "killed"])
def test_pods_end_with_a_status_of_their_own_when_their_stage_has_ended(tmp_path: Path, end: str) -> None:
    """Or with 0, where they had the time."""
    token = "0" * 64
    stage = subprocess.Popen([sys.executable, "-c", _STAGE, token, str(tmp_path), end])
    pods = []
    for role, more in (("graph", {"agents": 2}), ("graph", {"agents": 2}), ("tensor", {"elastic": True})):
        setup = {"host": "127.0.0.9", "port": CHANNEL_PORT, "store_port": STORE_PORT, "role": role, "threads": 1}
        given = {SETUP_VARIABLE: json.dumps(setup | more), TOKEN_VARIABLE: token, "GLOO_SOCKET_IFNAME": "lo"}
        pods.append(subprocess.Popen([sys.executable, "-c", _POD], env=os.environ | given))
    assert stage.wait(SOON) == (0 if end == "well" else -signal.SIGKILL)
    assert {pod.wait(SOON) for pod in pods} <= ({0, STAGE_GONE} if end == "well" else {STAGE_GONE})


@pytest.mark.slow
def test_torch_has_no_more_threads_than_its_worker_where_numba_has_started_its_own(
    tmp_path: Path, nobody_left: None
) -> None:
    with _group(tmp_path, [Role("graph", 1, threads=2), Role("tensor", 1)], RecordedProgress()) as group:
        assert group.run(count_threads) == [[2, 2], [1, 1]]


def count_threads(worker: Worker) -> list[int]:
    """Threads of torch and of Numba, once that has started its own, by itself one for each core."""
    import numba
    import torch

    started = numba.get_num_threads()
    return [torch.get_num_threads(), started]


def test_an_error_of_a_function_fails_the_call_at_once(tmp_path: Path, nobody_left: None) -> None:
    with _group(tmp_path, [Role("graph", 2)], RecordedProgress()) as group, pytest.raises(WorkersFailed) as raised:
        group.run(fail_on, 1)
    assert "rank 1 of role graph" in str(raised.value)
    assert "failed: ZeroDivisionError: no" in str(raised.value)


def fail_on(worker: Worker, rank: int) -> None:
    """Fail on one rank, which the others wait for."""
    import torch.distributed as dist

    if worker.rank == rank:
        raise ZeroDivisionError("no")
    dist.barrier()


@pytest.fixture(scope="module")
def relaxed(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    """The dataset of one worker, with which those of others are compared."""
    return run_stage(tmp_path_factory.mktemp("one") / "dataset", {"count": 1, "cpu": 1, "memory": "1Gi"})


def run_stage(output: Path | str, workers: Any, progress: Progress | None = None, **params: Any) -> Executed:
    """Make a dataset of the toy stage in this process."""
    resources = Resources.model_validate({"cpu": 1, "workers": workers})
    return execute(toy_workers.STAGE, params, {}, str(output), resources, progress or RecordedProgress(), "workers")


def files_of(executed: Executed) -> dict[str, str]:
    """Checksums by name."""
    return {entry.path: entry.sha256 for entry in executed.manifest.files}


@pytest.mark.slow
def test_any_number_of_workers_makes_the_same_dataset(relaxed: Executed, tmp_path: Path, nobody_left: None) -> None:
    made = run_stage(tmp_path / "dataset", {"count": 4, "cpu": 0.5, "memory": "1Gi"})
    assert len(files_of(made)) == 8
    assert files_of(made) == files_of(relaxed)
    assert made.manifest.digest == relaxed.manifest.digest
    assert made.manifest.stats["ranks"] == 4
    assert made.manifest.engine == "workers"
    assert not (tmp_path / "dataset" / CHECKPOINT_FOLDER).exists()
    made.dataset.verify()


@pytest.mark.slow
def test_workers_of_two_roles_write_to_a_bucket(relaxed: Executed, s3_store: Store, nobody_left: None) -> None:
    size = {"count": 1, "cpu": 1, "memory": "1Gi"}
    location = s3_store.location("relax", relaxed.manifest.digest)
    made = run_stage(location.uri, {"graph": size, "tensor": {**size, "cpu": 2}})
    assert files_of(made) == files_of(relaxed)
    assert made.manifest.stats["ranks"] == 2
    assert not list(location.join(CHECKPOINT_FOLDER).walk_files())
    made.dataset.verify()


def test_a_checkpoint_is_not_sent_to_the_store_at_each_write(tmp_path: Path) -> None:
    sent: list[list[str]] = []
    checkpoint = Checkpoint(tmp_path, lambda: sent.append(sorted(path.name for path in tmp_path.rglob("*.bin"))))
    for number in range(3):
        checkpoint.write(f"part/{number}.bin", b"x")
        checkpoint.save()
    assert sent == [["0.bin"]]
    checkpoint.save(now=True)
    checkpoint.save(now=True)
    assert sent[1:] == [["0.bin", "1.bin", "2.bin"]]
    assert (checkpoint.read("part/2.bin"), checkpoint.read("part"), checkpoint.read("3.bin")) == (b"x", None, None)


@pytest.mark.slow
def test_a_killed_stage_leaves_nothing_and_goes_on_from_its_checkpoint(relaxed: Executed, tmp_path: Path) -> None:
    """It is killed between two steps, run again with other workers, of which one is killed, and makes the same."""
    output, workers = tmp_path / "dataset", {"count": 2, "cpu": 1, "memory": "1Gi"}
    command = [sys.executable, "-P", "-m", "tests.cluster.with_more_tasks", "stage", "relax", "--output", str(output)]
    command += ["--engine", "workers", "--resources-json", json.dumps({"cpu": 1, "workers": workers})]
    command += ["--params-json", json.dumps({"seconds": 0.3}), "--events"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as stage:
        assert stage.stdout is not None
        events = (parse_event(line) for line in stage.stdout)
        first = next(event for event in events if event and event["event"] == "progress" and event["done"] >= 2)
        members = members_of(stage.pid)
        stage.kill()
    assert first["facts"]["process"] in [member.pid for member in members]
    _, alive = psutil.wait_procs(members, timeout=SOON)
    assert alive == []

    def at_step(event: dict[str, Any]) -> None:
        if event["event"] == "progress" and event["done"] == 5 and not killed:
            killed.append(event["facts"]["process"])
            os.kill(killed[0], signal.SIGKILL)

    killed: list[int] = []
    again = run_stage(output, {"count": 3, "cpu": 1, "memory": "1Gi"}, RecordedProgress(at_step), seconds=0.01)
    assert files_of(again) == files_of(relaxed)
    assert int(again.manifest.stats["resumed"] or 0) >= 5
    assert killed


def test_errors_of_workers_are_those_of_the_stage(tmp_path: Path, nobody_left: None) -> None:
    with pytest.raises(UserError, match=r"blocks: these blocks cannot be relaxed \(got 8\)"):
        run_stage(tmp_path / "dataset", {"count": 2, "cpu": 1, "memory": "1Gi"}, end="bad-input")
    with pytest.raises(UserError, match=r"resources.workers: the stage needs a worker group"):
        run_stage(tmp_path / "other", None)
