"""Launches that want the same dataset at the same moment, each in an event loop of its own."""

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

from superworkflow.infra.launch.kubernetes.single_flight import turn

SEVERAL = 4


def test_one_at_a_time_looks_for_a_job_and_makes_it() -> None:
    made = list[str]()

    async def launch(output: str) -> bool:
        async with turn(output) as end:
            found = output in made
            await asyncio.sleep(0.02)
            if not found:
                made.append(output)
            end()
            await asyncio.sleep(0.02)
        return found

    with ThreadPoolExecutor(2 * SEVERAL) as pool:
        found = list(pool.map(lambda output: asyncio.run(launch(output)), ["a", "b"] * SEVERAL))
    assert sorted(made) == ["a", "b"]
    assert sorted(found) == [False] * 2 + [True] * (2 * SEVERAL - 2)


def test_a_turn_is_over_when_its_launch_fails_or_was_cancelled() -> None:
    begun = threading.Event()

    async def fail() -> None:
        async with turn("a"):
            begun.set()
            raise ValueError("of the launch")

    async def wait_for_turn() -> None:
        async with turn("a") as first, asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(fail())
            await asyncio.sleep(0)
            waiting.cancel()
            first()
        async with asyncio.timeout(5), turn("a"):
            pass

    with contextlib.suppress(ValueError):
        asyncio.run(fail())
    assert begun.is_set()
    asyncio.run(wait_for_turn())
