"""Promises of each launcher (`infra.launch.base.Launcher`), as tests on a toy stage that waits for a file.

The tests of a launcher inherit `LauncherCases` and have a fixture `ground` that says where its stages run.
"""

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from superworkflow.infra.base.errors import StageFailed, UserError
from superworkflow.infra.config.profile import Placement
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.base import Event, Launcher, StageCall
from superworkflow.infra.process.exit_status import Reason
from superworkflow.infra.storage.dataset import Dataset
from tests.toys import SITE

ROOT = Path(__file__).parents[1]
WITH_TOYS = os.pathsep.join([str(SITE), str(ROOT)])
"""A `PYTHONPATH` with which a process has the toy stages."""
SEVERAL = 4

CALLER = """
import json, sys
from superworkflow.infra.launch import make_launcher
from superworkflow.infra.launch.base import StageCall
from superworkflow.infra.config.profile import Placement, Profile
profile, prepared, (node, stage, params, inputs, output), placement, labels = json.loads(sys.argv[1])
launcher = make_launcher(Profile.model_validate({"name": "tests", **profile}))
if prepared: launcher.prepare(prepared)
call = StageCall(node, stage, params, inputs, output, Placement.model_validate(placement), labels)
launcher.launch(call, lambda event: print(json.dumps(event), flush=True))
"""


def caller_arguments(call: StageCall, profile: Mapping[str, Any], prepared: Sequence[str] = ()) -> list[str]:
    """Command line of a process that launches a call with a profile, and prints its events."""
    given = [call.node, call.stage, dict(call.params), dict(call.inputs), call.output]
    everything = [profile, prepared, given, call.placement.model_dump(), dict(call.labels)]
    return [sys.executable, "-P", "-c", CALLER, json.dumps(everything)]


@contextmanager
def calling(arguments: list[str], once: str = '"progress"') -> Iterator[subprocess.Popen[str]]:
    """A process with such a command line, once an event has this text, such as of the stage at work; then killed."""
    environment = os.environ | {"PYTHONPATH": WITH_TOYS}
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        assert any(once in line for line in process.stdout)
        yield process
    finally:
        process.kill()
        process.communicate()


def until(happened: Callable[[], Any], seconds: float = 120) -> None:
    """Wait for something; the limit is for a machine on which it never does."""
    limit = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < limit
        time.sleep(0.05)


def gated_call(
    output: Path, gate: Path | None = None, memory: int = 1 << 30, cpu: float = 0.05, **params: Any
) -> StageCall:
    """A call of the toy stage, which waits until the file `gate` is there."""
    given = {**params, "gate": str(gate)} if gate else params
    placement = Placement(resources=Resources(cpu=cpu, memory=memory))
    return StageCall("my-gated", "gated", given, {}, str(output), placement, {"flow-run": "tests"})


def stage_processes(call: StageCall) -> list[psutil.Process]:
    """Processes of this machine that were started to make the dataset of a call."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if call.output in (line := process.info["cmdline"] or ()) and "stage" in line
    ]


def kill_stage(call: StageCall) -> None:
    """SIGKILL to the stage itself."""
    for process in stage_processes(call):
        process.kill()


def complete(call: StageCall) -> bool:
    """True if the dataset of a call is there."""
    return Dataset.find(call.output) is not None


def steps(events: list[Event]) -> list[int]:
    """Progress of the work at each report of the stage."""
    return [event["done"] for event in events if event["event"] == "progress"]


def says(events: list[Event], text: str) -> bool:
    """True if a line of the log has this text."""
    return any(text in str(event.get("message", "")) for event in events)


def at_work(act: Callable[[], Any], events: list[Event] | None = None) -> Callable[[Event], None]:
    """A listener that does something when the stage has begun to work, each time that it does."""

    def listen(event: Event) -> None:
        if events is not None:
            events.append(event)
        if event["event"] == "progress" and event["done"] == 1:
            act()

    return listen


def ignore(event: Event) -> None:
    """A listener."""


class Ground(ABC):
    """Environment of a launcher's stages, for its tests.

    Args:
        folder: folder in which stages can read and write.
    """

    ends_with_caller = True
    """True if stages notice that their caller died; otherwise they are adopted."""
    pays_for_waiting = True
    """True if a caller holds resources while it waits for another's stage."""

    def __init__(self, folder: Path):
        self.folder = folder

    def call(self, gate: Path | None = None, **more: Any) -> StageCall:
        """A call of the toy stage for a new dataset; see `gated_call`."""
        return gated_call(self.folder / "store" / "gated" / uuid.uuid4().hex, gate, **more)

    @abstractmethod
    def launcher(self) -> Launcher:
        """A launcher such as another run has."""

    @abstractmethod
    def caller(self, call: StageCall) -> list[str]:
        """Command line of a process that launches a call; see `caller_arguments`."""

    @abstractmethod
    def running(self, call: StageCall) -> set[str]:
        """Names of what a launcher has running for a call."""

    def watch(self, call: StageCall, launcher: Launcher) -> None:
        """Look on for as long as it takes to see that another launcher's stage is left alone."""
        return


@pytest.fixture
def gate(ground: Ground) -> Iterator[Path]:
    """A file that is not there, made in the end: nothing waits for it any more."""
    path = ground.folder / f"gate-{uuid.uuid4().hex}"
    yield path
    path.touch()


@pytest.fixture
def pool(gate: Path) -> Iterator[ThreadPoolExecutor]:
    """Threads; what they wait for happens at the latest when the test ends."""
    with ThreadPoolExecutor(SEVERAL) as pool:
        yield pool
        gate.touch()


class LauncherCases:
    """Tests of one launcher."""

    def test_a_complete_dataset_and_what_the_stage_says(self, ground: Ground) -> None:
        call, events = ground.call(seed=7), list[Event]()
        launched = ground.launcher().launch(call, events.append)
        dataset = Dataset.open(call.output)
        dataset.verify()
        assert launched.measured == dataset.manifest.measured
        assert (launched.measured.rows, launched.reused) == (2, False)
        assert 0 < launched.measured.runtime_s <= launched.seconds + 0.5
        assert 0 < launched.measured.cpu_s < 600
        assert (30 << 20) < launched.measured.peak_memory_bytes < (8 << 30)
        assert all(attempt.reason is None for attempt in launched.attempts)
        assert {event["event"] for event in events} == {"progress", "log"}
        assert steps(events) == [1, 2]
        lines = [event["message"] for event in events if event["event"] == "log"]
        assert (lines.count("prints 7"), lines.count("warns 7")) == (1, 1)
        again = ground.launcher().launch(call, ignore)
        assert again.reused
        assert again.measured == launched.measured

    def test_a_dataset_of_which_a_file_is_gone_is_made_again(self, ground: Ground) -> None:
        call, events = ground.call(seed=7), list[Event]()
        ground.launcher().launch(call, ignore)
        first = Dataset.open(call.output)
        first.location.join(first.files()[0]).delete()
        assert not ground.launcher().launch(call, events.append).reused
        assert says(events, "one of its files is gone")
        second = Dataset.open(call.output)
        second.verify()
        assert second.manifest.files == first.manifest.files

    def test_several_at_once(self, ground: Ground, pool: ThreadPoolExecutor) -> None:
        launcher, calls = ground.launcher(), [ground.call(seed=number, memory=256 << 20) for number in range(SEVERAL)]
        logs: list[list[Event]] = [[] for _ in calls]
        done = list(pool.map(lambda call, events: launcher.launch(call, events.append), calls, logs))
        assert [launched.measured.rows for launched in done] == [2] * SEVERAL
        for number, (call, events) in enumerate(zip(calls, logs, strict=True)):
            assert complete(call)
            assert steps(events) == [1, 2]
            assert [event["message"] for event in events if says([event], "prints")] == [f"prints {number}"]

    def test_bad_input_is_passed_on_as_the_stage_said_it(self, ground: Ground) -> None:
        call = ground.call(seed=3, end="bad-input")
        with pytest.raises(UserError) as raised:
            ground.launcher().launch(call, ignore)
        assert str(raised.value) == "gated.seed: the seed does not sprout (got 3). Choose another."
        assert [attempt.seconds > 0 for attempt in raised.value.attempts] == [True]
        self._nothing_made(ground, call)

    def test_a_stage_with_a_bug(self, ground: Ground) -> None:
        call, events = ground.call(end="bug"), list[Event]()
        with pytest.raises(StageFailed, match="stage my-gated failed: RuntimeError: half-way and no further") as raised:
            ground.launcher().launch(call, events.append)
        assert [attempt.seconds > 0 for attempt in raised.value.attempts] == [True]
        assert says(events, "Traceback")
        self._nothing_made(ground, call)

    def test_a_killed_stage_then_another_attempt(self, ground: Ground, gate: Path) -> None:
        call = ground.call(gate)
        with pytest.raises(StageFailed, match=r"stage my-gated failed: .*was killed") as raised:
            ground.launcher().launch(call, at_work(lambda: kill_stage(call)))
        assert {attempt.reason for attempt in raised.value.attempts} == {Reason.KILLED}
        assert all(attempt.seconds > 0 for attempt in raised.value.attempts)
        assert {attempt.resources for attempt in raised.value.attempts} == {call.placement.resources}
        assert list(Path(call.output).iterdir())  # it was in the middle of its work
        self._nothing_made(ground, call)
        gate.touch()
        assert not ground.launcher().launch(call, ignore).reused
        dataset = Dataset.open(call.output)
        dataset.verify()
        there = {path.relative_to(call.output).as_posix() for path in Path(call.output).rglob("*") if path.is_file()}
        assert there == {*dataset.files(), "manifest.json"}

    def test_cancelled(self, ground: Ground, gate: Path) -> None:
        launcher, call = ground.launcher(), ground.call(gate)
        cancelling = threading.Thread(target=launcher.cancel)
        with pytest.raises(StageFailed) as raised:
            launcher.launch(call, at_work(cancelling.start))
        assert [attempt.reason for attempt in raised.value.attempts] == [Reason.CANCELLED]
        self._nothing_made(ground, call)
        cancelling.join()
        launcher.cancel()  # once more is no error
        with pytest.raises(StageFailed, match="cancelled before the stage began"):
            launcher.launch(call, ignore)

    def test_a_listener_that_fails(self, ground: Ground, gate: Path) -> None:
        def fail() -> None:
            raise RuntimeError("the listener")

        call = ground.call(gate)
        with pytest.raises(RuntimeError, match="the listener"):
            ground.launcher().launch(call, at_work(fail))
        self._nothing_made(ground, call)

    def test_a_killed_caller(self, ground: Ground, gate: Path) -> None:
        """However it dies; here it has no chance to do anything."""
        call, events = ground.call(gate), list[Event]()
        with calling(ground.caller(call)) as caller:
            caller.kill()
            caller.wait()
        if ground.ends_with_caller:
            until(lambda: not ground.running(call))
        left = ground.running(call)
        assert ground.ends_with_caller == (not left)
        assert not complete(call)

        def go_on(event: Event) -> None:
            assert events or left <= ground.running(call)
            events.append(event)
            gate.touch()  # the stage was found, or begins anew

        assert not ground.launcher().launch(call, go_on).reused
        assert steps(events) == [1, 2]

    def test_what_another_has_running_is_waited_for_and_left_alone(
        self, ground: Ground, gate: Path, pool: ThreadPoolExecutor
    ) -> None:
        call, logs = ground.call(gate), [list[Event](), list[Event](), list[Event]()]
        owner, interrupted, waiting = (ground.launcher() for _ in logs)
        one = pool.submit(owner.launch, call, logs[0].append)
        until(lambda: steps(logs[0]))
        owned = ground.running(call)
        two, three = (
            pool.submit(each.launch, call, events.append)
            for each, events in zip((interrupted, waiting), logs[1:], strict=True)
        )
        until(lambda: logs[1] and logs[2])
        interrupted.cancel()
        with pytest.raises(StageFailed) as raised:
            two.result()
        assert bool(raised.value.attempts) == ground.pays_for_waiting
        ground.watch(call, owner)
        assert owned <= ground.running(call)
        assert not one.done()
        assert not three.done()
        gate.touch()
        made, waited = one.result(), three.result()
        assert (made.reused, waited.reused) == (False, True)
        assert all(attempt.reason is None for attempt in made.attempts)
        assert (waited.seconds > 0) == ground.pays_for_waiting
        assert waited.attempts == owner.claim_orphans(call.output) == waiting.claim_orphans(call.output) == ()

    def test_who_waits_for_one_that_is_cancelled_makes_the_dataset(
        self, ground: Ground, gate: Path, pool: ThreadPoolExecutor
    ) -> None:
        call, others, events = ground.call(gate), list[Event](), list[Event]()
        first, second = ground.launcher(), ground.launcher()
        one = pool.submit(first.launch, call, others.append)
        until(lambda: steps(others))
        two = pool.submit(second.launch, call, events.append)
        until(lambda: events)
        first.cancel()
        with pytest.raises(StageFailed) as raised:
            one.result()
        gate.touch()
        made = two.result()
        (paid,) = raised.value.attempts
        assert paid.reason is Reason.CANCELLED
        assert paid.seconds > 0
        assert not made.reused
        assert [attempt for attempt in made.attempts if attempt.reason or attempt.uid == paid.uid] == []

    def _nothing_made(self, ground: Ground, call: StageCall) -> None:
        assert not complete(call)
        assert not ground.running(call)
