"""The stage on the page about worker groups does what the page says."""

import re
from pathlib import Path

import numpy as np
import pytest

from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.tasks import load_stage

PAGE = Path(__file__).parent.parent / "docs" / "workers.md"


def test_the_stage_on_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "pagerank.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    pairs = np.random.default_rng(1).integers(0, 60, (400, 2))
    (tmp_path / "edges.csv").write_text("".join(f"{u},{v}\n" for u, v in pairs))
    one = Resources(cpu=1)
    edges = {"edges": str(tmp_path / "edges.csv")}
    graph = execute(load_stage("index"), {}, edges, str(tmp_path / "graph"), one, Progress("index")).dataset

    import pagerank  # type: ignore[import-not-found]

    workers = {"graph": {"count": 2, "cpu": 1, "memory": "1Gi"}, "tensor": {"count": 1, "cpu": 1, "memory": "1Gi"}}
    resources = Resources.model_validate({"cpu": 1, "workers": workers})
    inputs = {"graph": graph.uri}
    progress = Progress("pagerank")
    made = execute(pagerank.STAGE, {"steps": 5}, inputs, str(tmp_path / "ranks"), resources, progress, "workers")
    found = np.concatenate([made.dataset.array(f"ranks/part-{part}.npy") for part in range(pagerank.PARTS)])

    indptr, indices = graph.array("indptr.npy"), graph.array("indices.npy")
    matrix = np.zeros((len(indptr) - 1,) * 2)
    for vertex in range(len(matrix)):
        matrix[vertex, indices[indptr[vertex] : indptr[vertex + 1]]] = 1
    matrix /= np.maximum(1, matrix.sum(axis=0))
    expected = np.full(len(matrix), 1 / len(matrix))
    for _ in range(5):
        expected = 0.15 / len(matrix) + 0.85 * matrix @ expected
    assert np.allclose(found, expected)
    assert found.sum() == pytest.approx(1)
