"""The one rule for values which mean that a node has no label, for every reader of labels."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_LABEL = "an empty field, nan, None, null or a number below 0"
"""The values, for messages and documentation."""
_WORDS = frozenset({"", "nan", "none", "null", "<na>"})
_BELOW_ZERO = re.compile(r"-0*[1-9]\d*(\.0*)?")


def is_missing(label: str | bytes) -> bool:
    """True if a label's text means that there is none, in upper or lower case."""
    text = label.decode("utf-8", "replace") if isinstance(label, bytes) else label
    return is_blank(text) or is_below_zero(text)


def is_blank(label: str) -> bool:
    """True if a text means that there is no value, whether values are classes or numbers."""
    return label.lower() in _WORDS


def is_below_zero(label: str) -> bool:
    """True for a whole number below 0: no class, but a number to predict."""
    return _BELOW_ZERO.fullmatch(label) is not None


def missing(labels: Any) -> NDArray[np.bool_]:
    """True for each label that means none.

    Args:
        labels: NumPy's numbers [n], or an Arrow array of texts or bytes, in which null means none too.
    """
    if isinstance(labels, np.ndarray):
        return ~(labels >= 0)  # neither is NaN
    coded = labels.dictionary_encode()
    of_kind = np.array([*map(is_missing, coded.dictionary.to_pylist()), True])
    found: NDArray[np.bool_] = of_kind[coded.indices.fill_null(len(of_kind) - 1).to_numpy()]
    return found
