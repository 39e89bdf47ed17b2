"""Graphs of the benchmarks of training: what both sides read is there and fits, and is made once."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import gnn_graphs
from tests.benchmarks.gnn_graphs import GRAPH, WIDTH, communities, debian
from tests.benchmarks.setting import Setting

PACKAGES = """Package: {name}
Maintainer: {maintainer} <someone@example.org>
Section: {section}
Depends: {depends}
Description: words of {name}
Tag: role::program

"""


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(folder=tmp_path / "bench", quick=True, stream=io.StringIO())


@pytest.mark.slow
def test_communities_are_symmetric_and_divided(setting: Setting) -> None:
    graph = communities(setting, 400, 2000, 64)
    assert np.bincount(graph.splits).tolist() == [200, 20, 180]
    assert graph.steps == 4
    assert set(graph.splits[graph.some(2, 50)]) == {2}
    indptr, indices = (np.load(graph.folder / f"{part}-0.npy") for part in ("indptr", "indices"))
    receivers = np.repeat(np.arange(400), np.diff(indptr))
    assert sorted(zip(receivers, indices, strict=True)) == sorted(zip(indices, receivers, strict=True))
    assert np.load(graph.folder / "features-node.npy").shape == (400, WIDTH)
    assert np.bincount(np.load(graph.folder / "labels.npy")).tolist() == [8] * 50
    made = (graph.folder / GRAPH).stat().st_ino
    assert (communities(setting, 400, 2000, 64).folder / GRAPH).stat().st_ino == made


def test_debian_is_that_of_the_lists(setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = tmp_path / "lists"
    lists.mkdir()
    monkeypatch.setattr(gnn_graphs, "LISTS", str(lists))
    assert debian(setting, 8) is None
    text = "".join(
        PACKAGES.format(name=f"p{i:02}", maintainer=f"m{i % 3}", section=f"s{i % 2}", depends=f"p{(i + 1) % 40:02}")
        for i in range(40)
    )
    (lists / "archive_Packages").write_text(text)
    graph = debian(setting, 8)
    assert graph is not None
    facts = json.loads((graph.folder / GRAPH).read_text())
    assert facts["nodes"] == {"maintainer": 3, "package": 40, "source": 40, "tag": 1}
    assert facts["target"] == "package"
    for number, (_, receivers, senders) in enumerate(facts["relations"]):
        indptr, indices = (np.load(graph.folder / f"{part}-{number}.npy") for part in ("indptr", "indices"))
        assert len(indptr) == facts["nodes"][receivers] + 1
        assert indices.max(initial=0) < facts["nodes"][senders]
    assert np.load(graph.folder / "features-tag.npy").shape == (1, 512)
    assert np.bincount(graph.splits).tolist() == [4, 4, 32]
