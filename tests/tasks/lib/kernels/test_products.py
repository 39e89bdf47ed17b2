"""Ways to multiply: each runs in every thread, in forked children too, and counts what it does."""

import os
import subprocess
import sys

import llvmlite.binding

from superworkflow.tasks.lib.kernels.products import PRODUCTS, may_use_tiles

FORKED = """
import os, threading
from superworkflow.tasks.lib.kernels.products import PRODUCTS
before = set(PRODUCTS.measured())
if os.fork() == 0:
    found = []
    threads = [threading.Thread(target=lambda: found.append(PRODUCTS.measured())) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    slowest = min(min(each.values()) for each in found)
    os._exit(0 if [set(each) for each in found] == 3 * [before] and slowest > 1e8 else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_all_ways_run_in_threads_of_a_forked_child():
    assert subprocess.run([sys.executable, "-c", FORKED], env=dict(os.environ), timeout=300).returncode == 0


def test_the_default_is_what_every_processor_has():
    assert PRODUCTS.available[0] == "floats"
    assert ("words" in PRODUCTS.available) <= bool(llvmlite.binding.get_host_cpu_features().get("avx512bf16"))
    assert ("tiles" in PRODUCTS.available) == may_use_tiles()
