"""Concurrent writes of the same entity to MLflow's database."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from mlflow.exceptions import MlflowException

T = TypeVar("T")
_TIMES = 10
_REFUSED = ("BAD_REQUEST", "TEMPORARILY_UNAVAILABLE")
"""Error codes into which MLflow turns errors of its database."""


def among_rivals(work: Callable[[], T]) -> T:
    """Do `work` again where the database refuses it.

    MLflow looks whether a tag, a dataset or the like is there and adds it if not: of two runs that do so at once the
    database refuses one, which finds it there the next time. A server that cannot be reached was asked for a minute
    already, and is not asked again.

    Args:
        work: whatever may be done twice.

    Raises:
        MlflowException: it was refused each time, or failed for another reason.
    """
    for _ in range(_TIMES - 1):
        try:
            return work()
        except MlflowException as error:
            if error.error_code not in _REFUSED:
                raise
            time.sleep(random.uniform(0.01, 0.2))  # of many at once each time one succeeds
    return work()
