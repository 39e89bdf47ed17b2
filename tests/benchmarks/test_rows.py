"""Rows that fail fail the benchmark, and graphs are kept only for the code that made them."""

import io
import json
import sys
from pathlib import Path

import pytest

from tests.benchmarks import code, graphs
from tests.benchmarks.__main__ import run_rows
from tests.benchmarks.graphs import blogcatalog, labelled_edges
from tests.benchmarks.measure import Failed, run_command
from tests.benchmarks.report import Report, Row
from tests.benchmarks.rows_index import _compare
from tests.benchmarks.setting import Setting


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(folder=tmp_path / "bench", quick=True, stream=io.StringIO())


def _command(setting: Setting, text: str, failure: type[Failed] = Failed):  # type: ignore[no-untyped-def]
    return lambda: run_command([sys.executable, "-c", text], 1, setting.folder / "logs" / "own.log", failure)


def test_row_that_fails_fails_the_benchmark_and_what_is_published(setting: Setting, tmp_path: Path) -> None:
    """The peer of one row and our own side of another end badly."""
    documents = tmp_path / "docs"
    documents.mkdir()
    (documents / "benchmarks.json").write_text("an older result")
    well = _command(setting, "pass")
    bad = _command(setting, "raise SystemExit('out of luck')")
    absent = _compare(setting, Row("absent", "peer", "s", 1), well, lambda: setting.peer_command("networkx_index"))
    assert (absent.failed, "does not start" in absent.note) == (True, True)
    environment = Path(setting.peers_python)
    environment.parent.mkdir(parents=True)
    environment.write_text("#!/bin/sh\necho no such package >&2\nexit 3\n")
    environment.chmod(0o755)
    rows = {
        "well": lambda s: [_compare(s, Row("good", "peer", "s", 1), well, well)],
        "peer": lambda s: [_compare(s, Row("theirs", "peer", "s", 1), well, lambda: s.peer_command("networkx_index"))],
        "own": lambda s: [_compare(s, Row("ours", "peer", "s", 1), bad, well)],
    }
    out = setting.folder / "results.json"
    assert run_rows(setting, rows, Report("bench"), out, publish=True, documents=documents) == 1
    published = json.loads((documents / "benchmarks.json").read_text())
    assert published == json.loads(out.read_text())
    assert {row["name"]: row["failed"] for row in published["rows"]} == {
        "good / peer": False, "theirs / peer": True, "own / all peers": True,
    }  # fmt: skip
    notes = {row["name"]: row["note"] for row in published["rows"]}
    assert "status 3: no such package" in notes["theirs / peer"]
    assert "out of luck" in notes["own / all peers"]
    assert out.with_suffix(".md").read_text().count("| failed |") == 2
    assert (documents / "benchmarks.png").stat().st_size > 1000
    assert "failed: own / all peers" in setting.stream.getvalue()
    assert run_rows(setting, {"well": rows["well"]}, Report("bench"), out) == 0


@pytest.mark.slow
def test_edge_list_of_other_code_is_not_used(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    path, prefix, rows, _ = labelled_edges(setting)
    first = path.parent
    made = path.stat().st_ino
    assert len(prefix.read_bytes().splitlines()) == rows // 10 + 1
    assert labelled_edges(setting)[0].stat().st_ino == made

    monkeypatch.setattr(code, "_versions", lambda: {"numpy": "another"})
    again = labelled_edges(setting)[0]
    assert again.parent != first
    assert not first.exists()
    assert [each.name for each in setting.data.iterdir()] == [again.parent.name]


def test_key_covers_what_is_imported_and_the_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "made/__init__.py": "", "made/graph.py": "from made import shapes\n", "made/other.py": "",
        "made/shapes/__init__.py": "def late():\n    import made.deep.down\n",
        "made/deep/__init__.py": "", "made/deep/down.py": "from .. import rim\n", "made/rim.py": "import numpy\n",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(code, "ROOT", tmp_path)
    code._source.cache_clear()
    monkeypatch.setattr(code, "_source", code._source.__wrapped__)

    def key(**parameters: int) -> str:
        return code.key(("made.graph",), **parameters)

    names = {"made", "made.graph", "made.shapes", "made.deep", "made.deep.down", "made.rim"}
    assert set(code.sources(("made.graph",))) == names
    before = key(edges=1)
    assert key(edges=1) == before
    assert key(edges=2) != before
    (tmp_path / "made" / "other.py").write_text("changed = True\n")
    assert key(edges=1) == before
    (tmp_path / "made" / "rim.py").write_text("import numpy as np\n")
    assert key(edges=1) != before


def test_graph_is_keyed_by_the_code_of_its_stages() -> None:
    names = set(code.sources(graphs._made_by("index")))
    modules = {name.rpartition(".")[2]: name for name in names}
    assert {"edge_lists", "encode", "dataset", "graphs"} <= modules.keys()
    assert "walker" not in modules
    assert "encode" not in {name.rpartition(".")[2] for name in code.sources(graphs._made_by())}


def test_stand_in_has_neither_the_name_nor_the_targets_of_what_it_stands_for(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUPERWORKFLOW_TEST_DATA", raising=False)
    graph = blogcatalog(setting)
    assert (graph.name, graph.real) == ("planted partition 10.3k/668k", False)
    assert "blogcatalog" not in str(graph.folder.relative_to(setting.folder)).lower()
    full = Setting(folder=setting.folder)
    assert full.target(300, graph.real) is None
    assert full.target(300) == 300
    assert setting.target(300) is None  # small graphs
