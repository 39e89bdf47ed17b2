"""The notebooks of `examples/`, executed from top to bottom; the one that needs a cluster in `tests/cluster`."""

import shutil
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
ON_CLUSTER = "nightly_retraining.ipynb"


FIRST, *LATER = sorted(path.name for path in EXAMPLES.glob("*.ipynb") if path.name != ON_CLUSTER)


@pytest.mark.parametrize("name", [FIRST, *(pytest.param(each, marks=pytest.mark.slow) for each in LATER)])
def test_notebook(name: str, tmp_path: Path, prefect_api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    shutil.copy(EXAMPLES / "own_model.py", tmp_path)
    execute(name, tmp_path)


def execute(name: str, folder: Path) -> list[dict[str, Any]]:
    """Run all cells in a folder; what they show, by its type."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs name paths of the machine that ran it"
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    shown: list[dict[str, Any]] = [
        output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])
    ]
    assert any("text/html" in each for each in shown)
    assert any("100%" in each.get("text/html", "") for each in shown), "progress of a run, as it was drawn last"
    return shown
