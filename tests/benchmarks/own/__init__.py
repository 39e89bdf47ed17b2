"""Our side of the comparisons, each a process that answers requests; run as `python -m tests.benchmarks.own.NAME`."""
