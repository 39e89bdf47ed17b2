"""Huge pages change nothing but where the bytes lie."""

import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from superworkflow.tasks.lib.kernels.huge_pages import map_whole, on_huge_pages, small_pages


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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="huge pages of Linux")
def test_arrays_are_not_on_huge_pages_where_small_ones_are_wanted() -> None:
    with small_pages():
        before = huge_bytes()
        small = np.ones(8 << 20, np.float32)
        assert huge_bytes() - before < small.nbytes // 2  # khugepaged may move other arrays at the same time
    with small_pages(False):
        large = np.ones(8 << 20, np.float32)
    if huge_bytes() - before < large.nbytes // 2:
        pytest.skip("this kernel gives no huge pages at once")


KEPT = """
import resource, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from superworkflow.tasks.lib.kernels.huge_pages import keep_memory, small_pages

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    with small_pages():
        np.empty(100 << 20, np.uint8).fill(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults()
if not keep_memory():
    sys.exit(3)
faults()
with ThreadPoolExecutor(1) as thread:
    in_thread = [thread.submit(faults).result() for _ in range(2)]
print(first, faults(), in_thread[1])
"""


def test_memory_that_is_kept_is_not_asked_for_again() -> None:
    done = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True)
    if done.returncode == 3:
        pytest.skip("this system's memory cannot be kept")
    first, *again = map(int, done.stdout.split())
    assert first > 10_000
    assert max(again) < 100


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="maps of Linux")
def test_a_file_is_mapped_whole_and_keeps_its_values(tmp_path: Path) -> None:
    def faults() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    values = np.arange(8 << 20)  # 64 MiB
    np.save(tmp_path / "values.npy", values)
    mapped = np.load(tmp_path / "values.npy", mmap_mode="r")
    map_whole(mapped)
    before = faults()
    assert mapped[::512].sum() == values[::512].sum()
    assert faults() - before < 500  # of 16,384 pages, which come 16 at a time else
    map_whole(values)
    map_whole(None)


HOLES = """
import sys
from pathlib import Path
import numpy as np
from superworkflow.tasks.lib.kernels.huge_pages import KeptMemory, keep_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

if not keep_memory():
    sys.exit(3)
memory = KeptMemory()
assert not memory.give_back()
arrays = [np.full(1 << 18, number, np.float32) for number in range(1600)]
del arrays[::2]
before = resident()
assert memory.give_back()
assert before - resident() > 700 << 20, (before, resident())
assert not memory.give_back()
assert all((each == number).all() for each, number in zip(arrays, range(1, 1600, 2), strict=True))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory of Linux processes")
def test_holes_between_kept_arrays_are_given_back() -> None:
    """In a process of its own, since it is for good."""
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode == 3:
        pytest.skip("this C library cannot be asked")
    assert done.returncode == 0, done.stderr
