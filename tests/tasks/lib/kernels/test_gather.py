"""Numbers that are gathered by a kernel are those that NumPy takes, for every kind of array."""

import numpy as np
import pytest

from superworkflow.tasks.lib.kernels.gather import picked


@pytest.mark.parametrize("dtype", ["<i4", "<i8", "<f4", "<f8", "<u8", "<i2", "bool"])
@pytest.mark.parametrize("shape", [(300,), (300, 1), (300, 3)])
@pytest.mark.parametrize("read_only", [False, True])
def test_picked_is_what_numpy_takes(dtype, shape, read_only):
    rng = np.random.default_rng(1)
    values = rng.integers(0, 100, shape).astype(dtype)
    values.flags.writeable = not read_only
    for count in (0, 1, 63, 64, 65, 500):
        rows = rng.integers(0, len(values), count)
        found = picked(values, rows)
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, values[rows])


def test_values_that_are_not_next_to_each_other():
    values, rows = np.arange(20)[::2], np.array([9, 0, 3])
    assert picked(values, rows).tolist() == [18, 0, 6]
