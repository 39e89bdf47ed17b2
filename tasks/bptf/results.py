"""Factors of the slices of time, as the program's dataset has them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.vertex.stage import GLOBALS


def slice_factors(values: Dataset) -> NDArray[np.float64] | None:
    """Factors of each slice, [slices, 1 + draws * factors]; None if there is one slice, whose factors are 1."""
    found = values.json(GLOBALS).get("slice_factors")
    return None if found is None else np.array(found)
