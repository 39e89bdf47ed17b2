"""Tasks on each engine that has them: order, errors, members that are lost."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.contract.resources import Executors, Resources
from superworkflow.infra.engines import engine
from superworkflow.infra.engines.dask.session import require_dask
from superworkflow.infra.engines.shared_dataset import member_folder
from superworkflow.infra.engines.task_session import Step, TaskFailed, TaskSession, member_cache, open_tasks


def a_job(folder: Path, name: str) -> Any:
    """As much of a stage's run as its engine asks for."""
    resources = Resources(cpu=2, memory=1 << 30)
    return cast("Any", SimpleNamespace(
        engine=name, engine_settings=engine(name).settings(), resources=resources, threads=2, scratch=folder,
        progress=Progress("tests", stream=io.StringIO()),
    ))  # fmt: skip


@pytest.fixture
def tasks(cluster_engine: str, tmp_path: Path) -> Iterator[TaskSession]:
    with open_tasks(a_job(tmp_path, cluster_engine)) as session:
        yield session


def _twice(item: int) -> Iterator[tuple[int, str]]:
    if item < 0:
        raise UserError("negative", value=item)
    yield from ((item % 2, f"{item}a"), (item % 2, f"{item}b"))


def _back(task: int, sent: list[str]) -> Iterator[tuple[int, str]]:
    yield 0, "".join(sent)


def _all(task: int, sent: list[str]) -> list[str]:
    return sent


def _checked(item: int) -> int:
    if item < 0:
        raise UserError("negative", value=item)
    return 10 // item


def test_an_exchange(tasks: TaskSession) -> None:
    """Items arrive in the order of their senders; of several faults the first is reported."""
    steps = Step(2, _back), Step(3, _all)
    assert tasks.exchange(range(5), _twice, *steps) == [["0a0b2a2b4a4b", "1a1b3a3b"], [], []]
    assert tasks.exchange([], _twice, *steps) == [["", ""], [], []]
    with pytest.raises(UserError, match="got -2"):
        tasks.exchange([1, -2, 3, -4], _twice, *steps)


def test_results_and_faults_of_tasks(tasks: TaskSession) -> None:
    assert tasks.run_tasks(_checked, [5, 2, 1]) == [2, 5, 10]
    assert tasks.run_tasks(_checked, []) == []
    with pytest.raises(UserError, match="got -3"):
        tasks.run_tasks(_checked, [1, -3, 2])
    with pytest.raises(TaskFailed, match=r"a task on (Spark|Dask) failed: .*ZeroDivisionError: "):
        tasks.run_tasks(_checked, [1, 0])


def _die_once(folder: Path, task: int, sent: list[str]) -> list[str]:
    """End this process the first time."""
    mark = folder / f"died-{task}"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return sent


@pytest.mark.slow
def test_a_member_that_is_killed_is_replaced(tasks: TaskSession, tmp_path: Path) -> None:
    from functools import partial

    made = tasks.exchange(range(4), _twice, Step(2, _back), Step(1, partial(_die_once, tmp_path)))
    assert made == [["0a0b2a2b", "1a1b3a3b"]]
    assert (tmp_path / "died-0").exists()


@member_cache
def _kept(item: int) -> int:
    (member_folder() / "copy").mkdir(parents=True, exist_ok=True)
    return os.getpid() + item


def _folder(item: int) -> tuple[str, int]:
    _kept(item)
    return str(member_folder()), _kept.cache_info().currsize  # type: ignore[attr-defined]


def test_workers_that_stay_keep_nothing(dask_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", dask_address)
    for _ in range(2):
        with open_tasks(a_job(tmp_path, "dask")) as session:
            assert session.scratch is None
            [(folder, size)] = session.run_tasks(_folder, [1])
        assert size == 1
        assert session.name in folder
        assert not Path(folder).exists()


def test_workers_of_its_own_end_with_the_session(tmp_path: Path) -> None:
    with open_tasks(a_job(tmp_path, "dask"), whole_members=True) as session:
        assert (session.slots, session.threads, session.scratch) == (1, 2, str(tmp_path))
        [process] = session.run_tasks(_process, [0])
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def _process(item: int) -> int:
    return os.getpid()


_POD = "import superworkflow.infra.engines.dask.worker as pod; pod.leave_message = lambda error: None; pod.join([])"


@pytest.mark.slow
def test_a_pod_has_a_process_for_each_core_or_one_for_all(tmp_path: Path) -> None:
    """It takes part in one session after the other, and ends with the stage's process."""
    from superworkflow.infra.engines.dask.session import LIFE_PORT
    from superworkflow.infra.engines.lifeline import STAGE_GONE, hold_lifeline
    from superworkflow.infra.launch.kubernetes.engines.dask import new_certificate

    certificate, key = new_certificate()
    settings = {"host": "127.0.0.7", "certificate": certificate, "key": key}
    given = {f"SUPERWORKFLOW_DASK_{name.upper()}": value for name, value in settings.items()}
    size = {"SUPERWORKFLOW_DASK_CORES": "2", "SUPERWORKFLOW_DASK_MEMORY": str(1 << 30)}
    pod = subprocess.Popen([sys.executable, "-c", _POD], env=os.environ | given | size)
    job = a_job(tmp_path, "dask")
    job.engine_settings = settings
    job.resources = Resources(cpu=1, executors=Executors(count=1, cpu=2, memory=1 << 30))
    with open_tasks(job) as session:
        assert (session.slots, session.threads, session.task_memory) == (2, 1, 512 << 20)
        found = set[int]()
        while len(found) < 2:
            found |= set(session.run_tasks(_process, range(8)))
    with open_tasks(job, whole_members=True) as session:
        assert (session.slots, session.threads, session.task_memory) == (1, 2, 1 << 30)
        assert session.run_tasks(_process, range(4)) == [pod.pid] * 4
    hold_lifeline(settings["host"], LIFE_PORT).close()  # as when this process ends
    assert pod.wait(20) == STAGE_GONE


def test_a_scheduler_that_is_lost_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import LocalCluster

    from superworkflow.infra.engines.dask import session as module

    monkeypatch.setattr(module, "CONNECT_SECONDS", 1)
    monkeypatch.setitem(module.CONFIG, "distributed.comm.timeouts.connect", 1)
    cluster = LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0", silence_logs="CRITICAL",
                           host="127.0.0.1", protocol="tcp://")  # fmt: skip
    address = cluster.scheduler_address
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", address)
    with open_tasks(a_job(tmp_path, "dask")) as session:
        assert session.run_tasks(_checked, [5]) == [2]
        cluster.close()
        with pytest.raises(TaskFailed, match=rf"the Dask scheduler at {address} was lost; run again"):
            session.run_tasks(_checked, [5])
    with pytest.raises(UserError, match=rf"DASK_SCHEDULER_ADDRESS: no Dask scheduler answers.*{address}"):
        with open_tasks(a_job(tmp_path, "dask")):
            pass


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"no distributed.*superworkflow\[dask\].*requirements-dask\.txt"):
        require_dask()
