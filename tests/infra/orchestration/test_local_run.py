"""Stages of a run without Prefect: their order, and what happens when one fails."""

import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from superworkflow.infra.base.errors import Stopped, SuperworkflowError
from superworkflow.infra.contract.diagram import Node
from superworkflow.infra.orchestration.local_run import run_each


def _nodes(**upstream: str) -> list[Node]:
    """Nodes by name, each with the names of those that it needs."""
    found: dict[str, Any] = {"elsewhere": SimpleNamespace(name="elsewhere", upstream=[])}
    for name, needed in upstream.items():
        found[name] = SimpleNamespace(name=name, upstream=[found[each] for each in needed.split()])
    del found["elsewhere"]
    return cast("list[Node]", list(found.values()))


DIAMOND = _nodes(a="elsewhere", b="a", c="a", d="", e="b c")


@pytest.mark.parametrize("at_once", [1, 2, 8])
def test_each_runs_after_those_that_it_needs(at_once: int) -> None:
    ended, running, most, lock = list[str](), set[str](), 0, threading.Lock()

    def work(node: Node) -> None:
        nonlocal most
        with lock:
            assert {each.name for each in node.upstream} - {"elsewhere"} <= set(ended)
            running.add(node.name)
            most = max(most, len(running))
        time.sleep(0.02)
        with lock:
            running.remove(node.name)
            ended.append(node.name)

    run_each(DIAMOND, work, at_once, pytest.fail)
    assert sorted(ended) == list("abcde")
    assert ended == list("abcde") or at_once > 1
    assert min(at_once, 2) <= most <= at_once


def test_after_a_failure_none_starts_and_those_at_work_are_finished() -> None:
    begun, ended, failing = list[str](), list[str](), threading.Event()

    def work(node: Node) -> None:
        begun.append(node.name)
        if node.name == "a":
            failing.set()
            raise SuperworkflowError("a is broken")
        failing.wait()
        time.sleep(0.05)
        ended.append(node.name)

    with pytest.raises(SuperworkflowError, match="a is broken"):
        run_each(DIAMOND, work, 2, pytest.fail)
    assert (sorted(begun), ended) == (["a", "d"], ["d"])


def test_a_run_that_was_stopped_says_so() -> None:
    """Whatever else failed by then."""
    together = threading.Barrier(2)

    def work(node: Node) -> None:
        together.wait()
        raise Stopped("cancelled") if node.name == "d" else SuperworkflowError("killed")

    with pytest.raises(Stopped, match="cancelled"):
        run_each(DIAMOND, work, 2, pytest.fail)


def test_an_interrupt_cancels_before_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = threading.Event()

    def interrupted(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("superworkflow.infra.orchestration.local_run.wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_each(DIAMOND, lambda node: cancelled.wait(60), 2, cancelled.set)
    assert cancelled.is_set()
