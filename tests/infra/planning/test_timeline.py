"""When stages begin and end, by hand."""

import pytest

from superworkflow.infra.planning.timeline import TimelineTask, timeline


def _task(name: str, *upstream: str, wait: float = 0.0, runtime: float = 10.0, cores: float = 1.0) -> TimelineTask:
    return TimelineTask(name, upstream, wait, runtime, runtime * cores)


def test_one_after_the_other() -> None:
    tasks = [_task("a", wait=1), _task("b"), _task("c", "a", runtime=5)]
    assert timeline(tasks, 1, 2) == {"a": (0, 11), "b": (11, 21), "c": (21, 26)}


def test_at_once_as_far_as_inputs_allow() -> None:
    tasks = [_task("a"), _task("b", "a"), _task("c", "a", runtime=4), _task("d", "b", "c")]
    assert timeline(tasks, 4) == {"a": (0, 10), "b": (10, 20), "c": (10, 14), "d": (20, 30)}


def test_those_that_share_processors_slow_down() -> None:
    tasks = [_task("a", cores=2), _task("b", cores=2, runtime=5)]
    # half speed each until b has done its 5 s of work, at 10; then a has 5 s left, alone
    assert timeline(tasks, 2, cores=2) == {"a": (0, pytest.approx(15)), "b": (0, pytest.approx(10))}
    assert timeline(tasks, 2) == {"a": (0, 10), "b": (0, 5)}
    assert timeline([_task("a"), _task("b")], 2, cores=2) == {"a": (0, 10), "b": (0, 10)}


def test_waiting_takes_no_processor() -> None:
    tasks = [_task("a", cores=2), _task("b", cores=2, wait=10)]
    assert timeline(tasks, 2, cores=2) == {"a": (0, 10), "b": (0, 20)}


def test_a_worker_waits_for_what_its_task_needs() -> None:
    """With two workers, one holds `b` until `a` has ended, so that `c` begins only then."""
    tasks = [_task("a"), _task("b", "a"), _task("c")]
    assert timeline(tasks, 2) == {"a": (0, 10), "b": (10, 20), "c": (10, 20)}


def test_cached_stages_take_nothing() -> None:
    assert timeline([TimelineTask("a", (), 0, 0, 0), _task("b", "a")], 1, 1) == {"a": (0, 0), "b": (0, 10)}
    assert timeline([], 1) == {}
