"""The command line as users run it."""

from pathlib import Path

import pytest

from tests.flows.command_line import CommandLine


@pytest.fixture
def command_line(tmp_path: Path, graph_files: tuple[Path, Path], prefect_api: str) -> CommandLine:
    """The command line on an empty store."""
    edges, labels = graph_files
    environment = {"PREFECT_API_URL": prefect_api, "MLFLOW_TRACKING_URI": ""}
    return CommandLine(tmp_path / "store", edges, labels, environment)
