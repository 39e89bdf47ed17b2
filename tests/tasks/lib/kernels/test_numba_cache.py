"""Kernels of several processes in one cache on disk."""

import subprocess
import sys
from pathlib import Path

from numba.core.caching import IndexDataCacheFile

PROCESSES, KERNELS = 4, 40
SAVE = """
import sys
from numba.core.caching import IndexDataCacheFile
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()
folder, process, kernels = sys.argv[1], *map(int, sys.argv[2:])
file = IndexDataCacheFile(folder, "kernel", "stamp")
print("ready", flush=True)
sys.stdin.read()
for number in range(kernels):
    file.save((process, number), [process, number])
"""


def test_processes_that_save_at_a_time_lose_no_kernel_and_mix_none(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", SAVE, str(tmp_path), str(process), str(KERNELS)],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for process in range(PROCESSES)
    ]  # fmt: skip
    for each in processes:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in processes:
        assert each.stdin is not None
        each.stdin.close()
    assert [each.wait(120) for each in processes] == [0] * PROCESSES
    file = IndexDataCacheFile(str(tmp_path), "kernel", "stamp")
    keys = [(process, number) for process in range(PROCESSES) for number in range(KERNELS)]
    assert [file.load(key) for key in keys] == list(map(list, keys))
