"""A measured process: says that it is ready, then answers each request, a JSON line, with one JSON line."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


class Clock:
    """Wall and CPU seconds (all threads of this process) of a block."""

    wall_s = cpu_s = 0.0

    def __enter__(self) -> Clock:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s, self.cpu_s = time.perf_counter() - self._wall, time.process_time() - self._cpu

    def seconds(self) -> dict[str, float]:
        return {"wall_s": self.wall_s, "cpu_s": self.cpu_s}


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]], prepare: Callable[[], dict[str, Any]] = dict) -> None:
    """Call `prepare`, send its facts, then answer requests until standard input ends.

    What libraries print goes to standard error, so that standard output holds nothing but answers.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(facts: dict[str, Any]) -> None:
        answers.write(json.dumps(facts) + "\n")
        answers.flush()

    tell({"ready": True, **prepare()})
    for line in sys.stdin:
        tell(answer(json.loads(line)))
