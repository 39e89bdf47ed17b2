"""Helpers of tests on Spark."""

import importlib.util
import shutil

import pytest

MISSING = [
    name
    for name, found in (("pyspark", importlib.util.find_spec("pyspark")), ("Java", shutil.which("java")))
    if not found
]
needs_spark = pytest.mark.skipif(bool(MISSING), reason=f"Spark needs {' and '.join(MISSING)}")
"""Marks a test, a class or a module (`pytestmark`) that is skipped where Spark cannot run."""
