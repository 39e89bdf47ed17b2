"""Programs on Debian's packages: sections by contexts, installed sizes and sections by words; needs apt's lists."""

import io
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file
from sklearn.linear_model import Lasso
from sklearn.svm import LinearSVC

from superworkflow.flows import load_superworkflow
from superworkflow.tasks.coem import STAGE as COEM
from superworkflow.tasks.colour import STAGE as COLOUR
from superworkflow.tasks.lasso import STAGE as LASSO
from superworkflow.tasks.publish_fields import STAGE as PUBLISH
from superworkflow.tasks.svm import STAGE as SVM
from superworkflow.tasks.vertex_fields import STAGE as FIELDS
from tests.tasks import debian
from tests.tasks.index_helpers import run_stage
from tests.tasks.test_linear_models import published, solved

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not debian.present(), reason="needs apt's lists of packages")]
Records = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def records() -> Records:
    return {name: dict(each) for name, each in debian.packages().items()}


def test_sections_by_contexts(records: Records, tmp_path: Path) -> None:
    """A twentieth of the sections says most of the others, after five sweeps of coem."""
    (tmp_path / "e.tsv").write_text("package\tcontext\n" + "".join(f"{a}\t{b}\n" for a, b in debian.contexts(records)))
    seeds = {name: each["Section"] for name, each in records.items() if debian.seeded(name)}
    rows = "".join(f"package:{name},{section}\n" for name, section in seeds.items())
    (tmp_path / "v.csv").write_text("node,label\n" + rows)
    read = load_superworkflow("coem").stages[0]
    graph = run_stage(read, {"weighted": False, "header": True}, {"edges": str(tmp_path / "e.tsv")}, tmp_path / "i")
    colours = run_stage(COLOUR, {}, {"graph": graph.uri}, tmp_path / "c")
    table = run_stage(FIELDS, {}, {"graph": graph.uri, "table": str(tmp_path / "v.csv")}, tmp_path / "f")
    inputs = {"graph": graph.uri, "colours": colours.uri, "table": table.uri}
    values = run_stage(COEM, {"scheduler": "sweep", "max_steps": 5}, inputs, tmp_path / "v", 1, io.StringIO())
    made = run_stage(PUBLISH, {}, {"graph": graph.uri, "values": values.uri}, tmp_path / "p")
    found = {row["node"]: row["predicted"] for row in made.table("vertices.parquet", ["node", "predicted"]).to_pylist()}
    others = [name for name in records if name not in seeds]
    right = sum(found.get(f"package:{name}") == records[name]["Section"] for name in others)
    assert 0.04 < len(seeds) / len(records) < 0.06
    assert right >= 0.55 * len(others)


def written(matrix: sp.csr_array, labels: np.ndarray, path: Path) -> str:
    dump_svmlight_file(sp.csr_matrix(matrix), labels, str(path), zero_based=True)
    return str(path)


def test_installed_sizes_by_words(records: Records, tmp_path: Path) -> None:
    matrix, labels = debian.tf_idf(records, 5), debian.sizes(records)
    samples = written(matrix, labels, tmp_path / "s.svm")
    graph, values = solved(LASSO, samples, tmp_path, {}, strength=0.05)
    found, facts = published(graph, values, tmp_path, matrix.shape[1])
    oracle = Lasso(alpha=facts["alpha"], tol=1e-6, max_iter=100_000).fit(sp.csc_matrix(matrix), labels)

    def objective(weights: np.ndarray, intercept: float) -> float:
        rest = labels - matrix @ weights - intercept
        return float((rest**2).mean() / 2 + facts["alpha"] * np.abs(weights).sum())

    assert facts["relative_gap"] <= 1e-6
    best = objective(oracle.coef_, float(oracle.intercept_))
    # Both gaps are shares of the squared deviation, of which the objective is half the mean.
    assert abs(objective(found[0], facts["intercept"]) - best) <= 2e-6 * labels.var()


def test_sections_by_words(records: Records, tmp_path: Path) -> None:
    """The 4 most frequent sections: 6,000 samples each at most."""
    sections = np.array([each["Section"] for each in records.values()])
    names, counts = np.unique(sections, return_counts=True)
    kept = np.flatnonzero(np.isin(sections, names[np.argsort(-counts)[:4]]))
    matrix = debian.tf_idf(records, 5)[kept]
    labels = np.unique(sections[kept], return_inverse=True)[1]
    samples = written(matrix, labels, tmp_path / "s.svm")
    graph, values = solved(SVM, samples, tmp_path, {"labels": "classes"})
    found, facts = published(graph, values, tmp_path, matrix.shape[1])
    oracle = LinearSVC(C=1.0, tol=1e-8, max_iter=100_000).fit(sp.csr_matrix(matrix), labels)

    def objective(weights: np.ndarray, intercepts: np.ndarray) -> float:
        signs = np.where(labels[:, None] == np.arange(4), 1, -1)
        losses = np.maximum(0, 1 - signs * (matrix @ weights.T + intercepts)) ** 2
        return float(losses.sum() + (weights**2).sum() / 2 + (intercepts**2).sum() / 2)

    assert facts["relative_gap"] <= 1e-6
    assert objective(found, np.array(facts["intercept"])) == pytest.approx(
        objective(oracle.coef_, oracle.intercept_), rel=1e-6
    )
