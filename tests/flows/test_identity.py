"""A run reuses and makes what it was planned with, or says that something else is there."""

import os
from pathlib import Path

import pytest

from superworkflow.flows.node2vec import SUPERWORKFLOW
from superworkflow.infra.base.errors import DatasetDamaged, UserError
from superworkflow.infra.config.request import Request, build_request
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.local.launcher import ProcessLauncher
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.orchestration.run_node import run_node
from superworkflow.tasks.index import STAGE as INDEX

EDGES, OTHERS = "1,2\n2,3\n3,1\n", "1,2\n2,4\n4,1\n"


@pytest.fixture
def edges(tmp_path: Path) -> Path:
    """An edge list that was written long ago."""
    (tmp_path / "edges.csv").write_text(EDGES)
    os.utime(tmp_path / "edges.csv", (1e9, 1e9))
    return tmp_path / "edges.csv"


def _request(edges: Path) -> Request:
    return build_request(SUPERWORKFLOW, sources={"edges": str(edges)}, store=str(edges.parent / "store"))


def _index(request: Request) -> str:
    node = next(iter(request.diagram.nodes.values()))
    return run_node(node, request, ProcessLauncher(), lambda event: None, {}).state


def test_pinned(edges: Path) -> None:
    """A change of this value, which covers all stages before it, trains every model anew that there is."""
    assert _request(edges).diagram.nodes["embed"].digest == "575008a2893202602cf22404509e501d"


def test_source_edited_after_planning(edges: Path) -> None:
    request = _request(edges)
    edges.write_text(OTHERS)
    with pytest.raises(UserError, match=r"edges\.csv.*Run again"):
        _index(request)
    assert not list(edges.parent.glob("store/index/*/manifest.json"))
    assert _index(_request(edges)) == "ran"
    assert _index(_request(edges)) == "cached"


def test_dataset_of_another_source_under_the_name_of_this_one(edges: Path) -> None:
    """Such as a stage by itself leaves it in the folder that somebody gave it: it is named, and not used."""
    request = _request(edges)
    node = next(iter(request.diagram.nodes.values()))
    output = request.store.location("index", node.digest).uri
    (edges.parent / "others.csv").write_text(OTHERS)
    given = {"edges": str(edges.parent / "others.csv")}
    execute(INDEX, {}, given, output, Resources(), Progress("index"))
    with pytest.raises(DatasetDamaged, match="holds another dataset than its name says") as raised:
        _index(request)
    assert output in str(raised.value)
