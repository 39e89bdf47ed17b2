"""A deployment whose source is a table of a lakehouse: another version is a change, and nothing is read to see it."""

from pathlib import Path

import pyarrow as pa
import pytest

from superworkflow.flows import load_superworkflow
from superworkflow.infra.orchestration.source_trigger import look


def test_another_version_is_a_change(tmp_path: Path) -> None:
    delta = pytest.importorskip("deltalake")
    table = pa.table({"source": ["a", "b"], "target": ["b", "c"]})
    delta.write_deltalake(tmp_path / "lake", table)
    given = {"edges": f"delta://{tmp_path}/lake", "store": str(tmp_path / "store")}
    chosen = load_superworkflow("node2vec")
    first = look(chosen, given)
    assert look(chosen, given) == first
    delta.write_deltalake(tmp_path / "lake", table, mode="append")
    assert look(chosen, given) != first
    assert not (tmp_path / "store").exists()
