"""Huge pages change nothing but where the bytes lie."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tasks._pages import on_huge_pages


def huge_bytes() -> int:
    return 1024 * int(re.findall(r"AnonHugePages:\s+(\d+)", Path("/proc/self/smaps_rollup").read_text())[0])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="huge pages of Linux")
def test_an_array_moves_to_huge_pages_and_keeps_its_values() -> None:
    values = np.arange(8 << 20, dtype=np.float32)
    before = values.copy()
    if not on_huge_pages(values):
        pytest.skip("this kernel does not gather huge pages on request")
    assert huge_bytes() >= values.nbytes // 2
    np.testing.assert_array_equal(values, before)


def test_small_arrays_are_left_alone() -> None:
    assert not on_huge_pages(np.zeros(10))
