"""Fixtures of this room."""

from tests.flows.conftest import graph_files  # noqa: F401
