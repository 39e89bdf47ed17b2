"""Begin and end of each stage of a run, where several run at once and share processors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TimelineTask:
    """One stage.

    Args:
        name: unique.
        upstream: names of the tasks that must have ended before; all stand before this one.
        wait_s: seconds of starting, which take no processor.
        runtime_s: seconds of work after that, on processors that nothing else uses.
        cpu_s: CPU seconds of that work.
    """

    name: str
    upstream: tuple[str, ...]
    wait_s: float
    runtime_s: float
    cpu_s: float


@dataclass
class _Running:
    task: TimelineTask
    began: float
    wait_left: float
    work_left: float

    @property
    def cores(self) -> float:
        """Processors that it keeps busy when it has them."""
        return self.task.cpu_s / self.task.runtime_s if self.wait_left <= 0 and self.task.runtime_s > 0 else 0.0


def timeline(
    tasks: Sequence[TimelineTask], concurrency: int, cores: float | None = None
) -> dict[str, tuple[float, float]]:
    """Begin and end of each task, in seconds from the first one's begin.

    Tasks are taken in their order by `concurrency` workers, each of which waits for what its task needs, as Prefect's
    do. Where those that run at once would keep more processors busy than there are, all slow down alike.

    Args:
        tasks: in an order in which they can run.
        concurrency: how many may be taken at once.
        cores: processors that they share; None where each has its own, as on a cluster.
    """
    now, queue = 0.0, list(tasks)
    taken: list[TimelineTask] = []
    running: list[_Running] = []
    spans: dict[str, tuple[float, float]] = {}
    while queue or taken or running:
        while queue and len(taken) + len(running) < concurrency:
            taken.append(queue.pop(0))
        for task in [task for task in taken if all(name in spans for name in task.upstream)]:
            taken.remove(task)
            running.append(_Running(task, now, task.wait_s, task.runtime_s))
        demand = sum(each.cores for each in running)
        speed = min(1.0, cores / demand) if cores is not None and demand > 0 else 1.0
        step = min(each.wait_left if each.wait_left > 0 else each.work_left / speed for each in running)
        now += step
        for each in list(running):
            if each.wait_left > 0:
                each.wait_left = max(0.0, each.wait_left - step)
            else:
                each.work_left -= step * speed
            if each.wait_left <= 0 and each.work_left <= 1e-9:
                spans[each.task.name] = each.began, now
                running.remove(each)
    return spans
