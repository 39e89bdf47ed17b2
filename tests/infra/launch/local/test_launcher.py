"""Stages as processes: what all launchers promise, and what holds for processes alone."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.base.errors import StageFailed, UserError
from superworkflow.infra.launch.base import StageCall
from superworkflow.infra.launch.local import fork_client
from superworkflow.infra.launch.local.launcher import ProcessLauncher
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.digest import dataset_digest, file_sha256
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.lock import exclusive
from tests.launcher_cases import (
    WITH_TOYS,
    Ground,
    LauncherCases,
    at_work,
    caller_arguments,
    calling,
    complete,
    gate,
    gated_call,
    ignore,
    pool,
    stage_processes,
)

__all__ = ["gate", "pool"]


class Processes(Ground):
    """This machine."""

    def __init__(self, folder: Path, prepared: tuple[str, ...]):
        super().__init__(folder)
        self._prepared = prepared

    def launcher(self) -> ProcessLauncher:
        return ProcessLauncher()

    def caller(self, call: StageCall) -> list[str]:
        return caller_arguments(call, {}, self._prepared)

    def running(self, call: StageCall) -> set[str]:
        return {str(process.pid) for process in stage_processes(call)}


@pytest.fixture(scope="module", params=["fresh", "forked"], autouse=True)
def prepared(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """Stages that are started from a server; every promise is held to them and to fresh processes."""
    stages = ("gated",) if request.param == "forked" else ()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork_client, "_shared", None)
        patch.setenv("PYTHONPATH", WITH_TOYS)
        if stages:
            ProcessLauncher().prepare(stages)
        server = fork_client.shared()
        assert (server is not None) == bool(stages)
        yield stages
        if server is not None:
            server.close()


@pytest.fixture
def ground(tmp_path: Path, prepared: tuple[str, ...]) -> Processes:
    return Processes(tmp_path, prepared)


class TestPromises(LauncherCases):
    """The tests of every launcher, in processes of this machine."""

    def test_cancelled_while_no_thread_reads_signals(
        self, ground: Processes, gate: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As in compiled code that holds the GIL: it is killed, where Ctrl-C waited for it for ever."""
        monkeypatch.setattr("superworkflow.infra.launch.local.launcher.SAVE_SECONDS", 0.1)
        monkeypatch.setattr("superworkflow.infra.launch.local.launcher.RELEASE_SECONDS", 0.1)
        launcher, call = ground.launcher(), ground.call(gate)

        def stop() -> None:
            for process in stage_processes(call):
                process.suspend()
            launcher.cancel()

        with pytest.raises(StageFailed):
            launcher.launch(call, at_work(stop))
        assert not stage_processes(call)


FORKED = pytest.mark.parametrize("prepared", ["forked"], indirect=True)
"""Of tests that are about calls: how a stage is started makes no difference to them."""


@FORKED
def test_the_engine_reaches_the_stage(ground: Processes) -> None:
    call = ground.call()
    placement = call.placement.model_copy(update={"engine": "spark"})
    with pytest.raises(UserError, match=r"--engine: stage gated does not run on this engine \(got 'spark'\)"):
        ground.launcher().launch(replace(call, placement=placement), ignore)
    assert not Path(call.output).exists()


@FORKED
@pytest.mark.parametrize(
    ("stage", "params", "message"),
    [
        ("gated", {"sede": 5}, r"gated.sede: unknown parameter. Did you mean gated.seed\?"),
        ("wlak", {}, r"wlak: no such stage. Did you mean walk\?"),
    ],
)
def test_bad_call(ground: Processes, stage: str, params: dict[str, Any], message: str) -> None:
    call = replace(ground.call(**params), stage=stage)
    with pytest.raises(UserError, match=message):
        ground.launcher().launch(call, ignore)
    assert not Path(call.output).exists()


@FORKED
def test_source_edited_after_planning(tmp_path: Path) -> None:
    """The digest that was planned reaches the stage, which holds what it reads against it."""
    text = tmp_path / "text.txt"
    text.write_text("1,2\n2,3\n")
    planned = dataset_digest("gated", "1", {"seed": 0}, {"text": file_sha256(text)})
    call = replace(gated_call(tmp_path / "output"), inputs={"text": str(text)}, digest=planned)
    text.write_text("1,2\n2,4\n")
    with pytest.raises(UserError, match=r"is not what the run was planned with.*Run again") as raised:
        ProcessLauncher().launch(call, ignore)
    assert str(text) in str(raised.value)
    assert not Path(call.output).exists()
    text.write_text("1,2\n2,3\n")
    ProcessLauncher().launch(call, ignore)
    assert Dataset.open(call.output).digest == planned


def test_a_stage_that_waits_ends_with_its_caller(ground: Processes) -> None:
    """It writes nothing that could fail; only the pipe from its caller closes."""
    call = ground.call()
    with exclusive(Location.of(call.output)), calling(ground.caller(call), "waiting") as caller:
        (stage,) = stage_processes(call)
        caller.kill()
        stage.wait(timeout=60)
    assert not complete(call)
