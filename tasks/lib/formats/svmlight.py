"""Samples in the svmlight (libsvm) format: `label index:value …` with ascending indices; # begins a comment."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.text_file import open_unpacked

_LARGEST = 2**31 - 2
"""Of indices: what scikit-learn's reader takes."""


class Samples(NamedTuple):
    """Samples of a file.

    Args:
        labels: float64 [samples].
        matrix: float64 [samples, largest index + 1], without zeros; columns are numbered as in the file.
    """

    labels: NDArray[np.float64]
    matrix: sp.csr_array


def read_samples(path: Path, where: str) -> Samples:
    """All samples of a file. Query ids (`qid:`) are left out.

    Args:
        path: of the file, which may be gzipped.
        where: its name for people.

    Raises:
        UserError: a line is no sample, with its number and the word; a label or value is not finite; or there is none.
    """
    from sklearn.datasets import load_svmlight_file

    try:
        with open_unpacked(path, where) as stream:
            matrix, labels = load_svmlight_file(stream, dtype=np.float64, zero_based=True)
    except (ValueError, OverflowError, IndexError, UnicodeDecodeError) as error:
        _refuse(path, where, str(error))
    if not len(labels):
        raise UserError("the file has no samples", where=where, remedy="Give lines such as: 1 3:0.5 7:2")
    if not (np.isfinite(labels).all() and np.isfinite(matrix.data).all()):
        _refuse(path, where, "a number is not finite")
    found = sp.csr_array(matrix)
    found.eliminate_zeros()
    return Samples(labels, found)


def _refuse(path: Path, where: str, otherwise: str) -> NoReturn:
    """Raise the error of the first line that is no sample.

    Args:
        path: of the file.
        where: its name for people.
        otherwise: what is wrong if all lines are samples.
    """
    with open_unpacked(path, where) as stream:
        for number, line in enumerate(stream, 1):
            words, place = line.split(b"#", 1)[0].decode("utf-8", "replace").split(), f"{where}, line {number}"
            if words and not is_finite(words[0]):
                raise UserError("a label is a finite number", where=place, value=words[0][:40],
                                remedy="Begin each line with a number, of a class if there are some")  # fmt: skip
            before = -1
            for word in words[1:]:
                index, _, value = word.partition(":")
                if index == "qid":
                    continue
                if not (index.isascii() and index.isdigit() and int(index) <= _LARGEST and is_finite(value)):
                    raise UserError("a feature is an index, a colon, and a finite number", where=place, value=word[:40],
                                    remedy="Write it as 3:0.5, with an index from 0 on")  # fmt: skip
                if int(index) <= before:
                    raise UserError("the indices of a line ascend", where=place, value=f"{index} after {before}",
                                    remedy="Sort the line's features, and give each once")  # fmt: skip
                before = int(index)
    raise UserError(f"the file is not in the svmlight format: {otherwise}"[:200], where=where,
                    remedy="Give lines such as: 1 3:0.5 7:2")  # fmt: skip


def is_finite(word: str) -> bool:
    """True for a text that is a finite number."""
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False
