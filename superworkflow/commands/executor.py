"""`superworkflow executor`: what the pods of Spark executors run. Spark's own settings are in their environment."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from superworkflow.infra.spark.executor import run_executor


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """There are none."""


def run(options: argparse.Namespace) -> int:
    """Run one executor to its end."""
    return run_executor()
