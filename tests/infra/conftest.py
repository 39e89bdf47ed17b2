"""Fixtures of this room."""

import pytest


@pytest.fixture(scope="session")
def shared_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tracking store for runs that are asked for by id or name: other tests' runs are in it too."""
    return f"sqlite:///{tmp_path_factory.mktemp('others')}/mlflow.db"
