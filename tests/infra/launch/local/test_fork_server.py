"""Children of the fork server: processes like fresh ones, that end when they should."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from superworkflow.infra.launch.local.fork_client import ForkedProcess, ForkServer
from superworkflow.tasks import load_stage, stage_names

SERVER = """
import socket, sys, threading
from superworkflow.infra.launch.local.fork_server import serve
STARTED = {threads}
def preload():
    for _ in range(STARTED):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        yield
def main(arguments):
    exec(arguments[0], globals())
    return 0
sys.exit(serve(socket.socket(fileno=int(sys.argv[sys.argv.index("--control") + 1])), preload(), main))
"""

FACTS = """
import json, os, sys, signal
import psutil
print(json.dumps(dict(
    parent=os.getppid(), folder=os.getcwd(), variable=os.environ.get("MINE"), stdin=sys.stdin.read(),
    command=psutil.Process().cmdline(), interrupt=signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    files=sorted(os.readlink(f"/proc/self/fd/{n}").partition(":")[0] for n in range(3)), arguments=sys.argv[1:],
)))
"""


def _server(threads: int = 0) -> ForkServer:
    return ForkServer([], program=[sys.executable, "-c", SERVER.format(threads=threads)])


@pytest.fixture
def server() -> Iterator[ForkServer]:
    server = _server()
    yield server
    server.close()


def _start(server: ForkServer, code: str, **variables: str) -> ForkedProcess:
    child = server.start([code, "/some/output"], os.environ | variables)
    assert child is not None
    return child


def _end(child: ForkedProcess, given: str = "") -> tuple[int, str]:
    child.stdin.write(given)
    child.stdin.close()
    with child.stdout:
        said = child.stdout.read()
    return child.wait(), said


def test_child_is_like_a_fresh_process(server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = _end(_start(server, FACTS, MINE="of this child"), "a line\n")
    assert code == 0
    facts = json.loads(said)
    command = [word for word in facts.pop("command")[3:] if word]
    assert command == facts["arguments"] == [FACTS, "/some/output"]
    assert facts == {
        "parent": server.pid, "folder": str(tmp_path), "variable": "of this child", "stdin": "a line\n",
        "interrupt": True, "files": ["pipe"] * 3, "arguments": command,
    }  # fmt: skip
    assert "MINE" not in os.environ


@pytest.mark.parametrize(
    ("code", "status", "last"),
    [
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no')", 1, "no"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("import os; os.kill(os.getpid(), 11)", -signal.SIGSEGV, ""),
        ("threading.Thread(target=lambda: print('to the end')).start()", 0, "to the end"),
    ],
)
def test_exit_status(server: ForkServer, code: str, status: int, last: str) -> None:
    child = _start(server, code)
    ended, said = _end(child)
    assert (ended, child.poll()) == (status, status)
    assert said.splitlines()[-1:] == ([last] if last else [])
    child.kill()  # once it has ended this is no error


def test_children_at_once_and_a_signal(server: ForkServer) -> None:
    waiting, other = (_start(server, "print('up'); sys.stdin.read()") for _ in range(2))
    for child in (waiting, other):
        assert child.stdout.readline() == "up\n"
    assert waiting.poll() is None
    waiting.terminate()
    assert _end(waiting) == (-signal.SIGTERM, "")
    assert other.poll() is None
    assert _end(other) == (0, "")


def test_children_die_with_the_server(server: ForkServer) -> None:
    child = _start(server, "print('up'); sys.stdin.read()")
    assert child.stdout.readline() == "up\n"
    psutil.Process(server.pid).kill()
    assert child.wait() == -signal.SIGKILL
    assert server.start(["pass"], os.environ) is None
    child.stdin.close()
    child.stdout.close()


def test_server_ends_with_what_launches() -> None:
    code = (
        "from superworkflow.infra.launch.local.fork_client import ForkServer\n"
        "print(ForkServer([]).pid, flush=True)\ninput()"
    )
    launching = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert launching.stdout is not None
    server = psutil.Process(int(launching.stdout.readline()))
    launching.kill()
    launching.communicate()
    server.wait(timeout=20)


@pytest.mark.parametrize("name", ["NUMBA_NUM_THREADS", "PYTHONMALLOC", "OMP_WAIT_POLICY"])
def test_what_only_a_fresh_process_reads(server: ForkServer, name: str) -> None:
    assert server.start(["pass"], os.environ | {name: "1"}) is None
    assert _end(_start(server, "pass", OMP_NUM_THREADS="1")) == (0, "")


def test_what_scikit_learn_sets_when_it_is_imported_needs_no_fresh_process(server: ForkServer) -> None:
    code = "import os, sklearn; print(*sorted(each for each in os.environ if each.startswith('KMP_')))"
    given = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert given, "or the exception in fork_client is of no use"
    assert _end(_start(server, "pass", **dict.fromkeys(given, "FALSE"))) == (0, "")


def test_threads_are_those_of_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the environment gives libraries threads that they start when they are loaded."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    server = ForkServer([], program=[sys.executable, "-c", "import numpy\n" + SERVER.format(threads=0)])
    code = "from threadpoolctl import threadpool_info\nprint([pool['num_threads'] for pool in threadpool_info()])"
    assert _end(_start(server, code)) == (0, "[3]\n")
    assert _end(_start(server, code, OPENBLAS_NUM_THREADS="2")) == (0, "[2]\n")
    server.close()


def test_server_with_threads_refuses() -> None:
    server = _server(threads=1)
    while psutil.Process(server.pid).num_threads() < 2:
        pass
    assert server.start(["pass"], os.environ) is None
    server.close()


def test_stages_can_be_imported_before_a_fork() -> None:
    """None of them starts a thread when it is imported, and the modules named as late ones exist."""
    assert any(load_stage(name).late for name in stage_names())
    code = """
from superworkflow.infra.launch.local import fork_server
from superworkflow.commands.serve import preload
from superworkflow.tasks import stage_names
print(len(list(preload(stage_names(), ""))), fork_server._other_threads())
"""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    steps, threads = done.stdout.split()
    assert int(steps) > len(stage_names())
    assert threads == "False"
