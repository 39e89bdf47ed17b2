"""A tensor worker with faults, each drawn by (seed, call) for its first attempt: it ends, is late, or fails."""

import os
import random
import signal
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from superworkflow.tasks.lib.gnn import tensor_tasks

FOLDER_VARIABLE = "TENSOR_FAULTS"
"""Folder with a file for each call that has had its fault."""


def compute_call(facts: Mapping[str, Any], shared: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
    call = "-".join(str(facts[name]) for name in ("state", "layer", "back"))
    call += f"-{zlib.crc32(np.ascontiguousarray(arrays[1]))}"  # rows of an interval
    draw = random.Random(f"7-{call}").random()
    if draw < 0.06 and _is_first(call):
        if draw < 0.01:
            os.kill(os.getpid(), signal.SIGKILL)
        if draw < 0.03:
            raise RuntimeError("dropped")
        time.sleep(0.8)  # another has answered by then
    return tensor_tasks.compute_call(facts, shared, arrays)


def _is_first(call: str) -> bool:
    try:
        (Path(os.environ[FOLDER_VARIABLE]) / call).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def fail(worker: Any, item: Any) -> None:
    raise RuntimeError("not here")
