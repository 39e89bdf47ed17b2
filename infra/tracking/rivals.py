"""Runs that add the same thing to MLflow's database at once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from mlflow.exceptions import MlflowException

T = TypeVar("T")
_TIMES = 10


def among_rivals(work: Callable[[], T]) -> T:
    """Do `work` again where it fails.

    MLflow looks whether a tag, a dataset or the like is there and adds it if not: of two runs that do so at once the
    database refuses one, which finds it there the next time.

    Args:
        work: whatever may be done twice.

    Raises:
        MlflowException: it failed each time.
    """
    for _ in range(_TIMES - 1):
        try:
            return work()
        except MlflowException:
            time.sleep(random.uniform(0.01, 0.2))  # of many at once each time one succeeds
    return work()
