"""Training whose own matrices lie between poisoned zones."""

from types import FunctionType
from typing import Any

import numba

from superworkflow.tasks.embed import kernel
from tests.kernels.guarded import guarded_matrix


@numba.njit
def _matrix(rows: int, columns: int) -> Any:
    with numba.objmode(matrix="float32[::1]"):
        matrix = guarded_matrix(rows, columns)
    return matrix  # noqa: RET504  (names what comes out of object mode)


@numba.njit
def _word_matrix(rows: int, columns: int) -> Any:
    return _matrix((rows + 1) // 2 * kernel.WORD, columns)


def poison_matrices() -> None:
    """Before the training kernel is compiled: it takes its matrices from `guarded_matrix`."""
    kernel._matrix, kernel._word_matrix = _matrix, _word_matrix


def poisoned_training() -> Any:
    """A training kernel as it is compiled for this processor, with such matrices; the module's own stays what it is."""
    own = kernel.train_walks.py_func
    names = {**vars(kernel), "_matrix": _matrix, "_word_matrix": _word_matrix}
    return numba.njit(nogil=True, fastmath=kernel._FLAGS)(FunctionType(own.__code__, names, own.__name__))
