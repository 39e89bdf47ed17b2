"""Every kernel that these tests call has guard zones around its arrays."""

from collections.abc import Iterator

import pytest

from tests.kernels.guarded import guard_zones


@pytest.fixture(autouse=True, scope="session")
def _guarded() -> Iterator[None]:
    with guard_zones():
        yield
