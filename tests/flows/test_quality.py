"""Published quality on the benchmark graphs, through the command line; skipped where the graphs are absent."""

from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat

from tests.flows.command_line import CommandLine

SEEDED = ["node2vec.link_prediction=false", "evaluate.train_ratios=[0.5]", "evaluate.projection_sample=0"]


@pytest.fixture(scope="module")
def blogcatalog(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Edge list and labels of BlogCatalog (10,312 nodes, 333,983 edges, 39 labels)."""
    folder = tmp_path_factory.mktemp("blogcatalog")
    found = loadmat(shared_data / "blogcatalog" / "blogcatalog.mat")
    network, group = found["network"].tocoo(), found["group"].tocoo()
    once = network.row < network.col
    np.savetxt(folder / "edges.csv", np.c_[network.row[once], network.col[once]], fmt="%d", delimiter=",")
    np.savetxt(folder / "labels.csv", np.c_[group.row, group.col], fmt="%d", delimiter=",")
    return folder / "edges.csv", folder / "labels.csv"


def test_blogcatalog_in_one_epoch(blogcatalog: tuple[Path, Path], tmp_path: Path, prefect_api: str) -> None:
    """As good as gensim (0.380 / 0.223, measured with the same walks) at the DeepWalk protocol, 50% training."""
    command_line = CommandLine(tmp_path / "store", *blogcatalog, {"PREFECT_API_URL": prefect_api}, settings=SEEDED)
    metrics = command_line("run", "--no-tracking", "--json").document["metrics"]
    assert metrics["evaluate.micro_f1@0.5"] >= 0.38
    assert metrics["evaluate.macro_f1@0.5"] >= 0.225


@pytest.mark.slow
def test_blogcatalog_with_the_papers_parameters(
    blogcatalog: tuple[Path, Path], tmp_path: Path, prefect_api: str
) -> None:
    """Macro-F1 0.258: Table 2 of the node2vec paper, p = q = 0.25."""
    settings = [*SEEDED, "walk.p=0.25", "walk.q=0.25", "embed.epochs=3"]
    command_line = CommandLine(tmp_path / "store", *blogcatalog, {"PREFECT_API_URL": prefect_api}, settings=settings)
    assert command_line("run", "--no-tracking", "--json").document["metrics"]["evaluate.macro_f1@0.5"] >= 0.258


@pytest.mark.slow
def test_facebook_link_prediction(shared_data: Path, tmp_path: Path, prefect_api: str) -> None:
    """AUC 0.968 with Hadamard products: Table 4 of the node2vec paper."""
    edges = shared_data / "ego-facebook" / "ego-facebook.txt"
    settings = ["index.header=true", "evaluate.projection_sample=0"]
    command_line = CommandLine(tmp_path / "store", edges, edges, {"PREFECT_API_URL": prefect_api}, settings=settings)
    document = command_line("run", "--no-tracking", "--json", labels=False).document
    assert document["metrics"]["evaluate.link_auc@hadamard"] >= 0.968
