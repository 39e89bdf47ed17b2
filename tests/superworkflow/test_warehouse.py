"""Rows of a database → run → embeddings in pgvector → neighbours by SQL, on a real server."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import psycopg
import pyarrow.parquet as pq
import pytest

import superworkflow as sw
from superworkflow.__main__ import main
from superworkflow.deployed import EXPORTS, finish
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.decision import Decision
from tests.flows.command_line import SMALL
from tests.sweeps.conftest import Postgres
from tests.warehouse import postgres_with_vectors


@pytest.fixture(scope="module")
def server(graph_files: tuple[Path, Path]) -> Iterator[Postgres]:
    with postgres_with_vectors() as found:
        with psycopg.connect(found.url) as connection:
            connection.execute("CREATE EXTENSION vector")
            for path in graph_files:
                table = pd.read_csv(path)
                columns = ", ".join(f"{name} text" for name in table.columns)
                connection.execute(f"CREATE TABLE {path.stem} ({columns})")  # type: ignore[arg-type]
                with connection.cursor().copy(f"COPY {path.stem} FROM STDIN") as copy:  # type: ignore[arg-type]
                    for row in table.itertuples(index=False):
                        copy.write_row(row)
        yield found


def test_from_a_database_and_back(
    server: Postgres, graph_files: tuple[Path, Path], tmp_path: Path, prefect_api: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    password = "open-sesame"
    address = server.guarded("unused", password).rpartition("/")[0].replace("+psycopg", "") + "/postgres"
    address = address.replace(password, "${LIBRARY_PASSWORD}")
    monkeypatch.setenv("LIBRARY_PASSWORD", password)
    with psycopg.connect(server.url) as connection:
        connection.execute("GRANT SELECT ON edges, labels TO guarded")
        connection.execute("GRANT CREATE ON SCHEMA public TO guarded")
    store = tmp_path / "store"
    settings = dict(each.split("=") for each in SMALL) | {"node2vec.link_prediction": False}
    target = f"{address}?table=embeddings"
    run = sw.run(
        "node2vec", edges=f"{address}?table=edges", labels=f"{address}?query=SELECT * FROM labels",
        params=settings, store=str(store), name="night", export=[f"embeddings={target}"],
    )  # fmt: skip
    found = run["embeddings"].to_pandas()
    nodes, vectors = list(found["node"]), run["embeddings"].to_numpy()
    lengths = np.linalg.norm(vectors, axis=1)
    similar = vectors @ vectors[nodes.index("v3")] / lengths
    similar[nodes.index("v3")] = -np.inf
    nearest = """SELECT node FROM embeddings WHERE node <> 'v3'
        ORDER BY vector <=> (SELECT vector FROM embeddings WHERE node = 'v3') LIMIT 3"""
    with psycopg.connect(server.url) as connection:
        rows = [name for (name,) in connection.execute(nearest).fetchall()]
        assert rows == [nodes[place] for place in np.argsort(-similar)[:3]]
        connection.execute("UPDATE embeddings SET vector = vector + vector WHERE node = 'v3'")
        connection.execute("INSERT INTO embeddings SELECT 'gone', vector FROM embeddings WHERE node = 'v3'")

    command = ["export", "night", "embeddings"]
    assert main([*command, target, "--store", str(store)]) == 0
    assert f"{len(nodes)} rows of embeddings" in capsys.readouterr().out
    with psycopg.connect(server.url) as connection:
        length = "SELECT vector_norm(vector) FROM embeddings WHERE node = 'v3'"
        (norm,) = connection.execute(length).fetchone() or (0,)
        assert norm == pytest.approx(lengths[nodes.index("v3")], rel=1e-5)
        assert connection.execute("SELECT count(*) FROM embeddings").fetchone() == (len(nodes) + 1,)
    assert run["embeddings"].export(f"{address}?mode=replace&table=embeddings") == len(nodes)
    with psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT count(*) FROM embeddings").fetchone() == (len(nodes),)
    assert main([*command, str(tmp_path / "out.parquet"), "--store", str(store)]) == 0
    assert pq.read_table(tmp_path / "out.parquet").equals(run["embeddings"].to_arrow())
    for wrong, words in (("?table=no.where", "does not exist"), ("?key=size&table=embeddings", "no such column")):
        with pytest.raises(UserError, match=words):
            run["embeddings"].export(address + wrong)

    # A deployed run writes what its deployment names, unless its model was rejected.
    monkeypatch.setenv(EXPORTS, f"embeddings={tmp_path}/night.parquet")
    rejected = Decision("teams", 2, "rejected", "worse")
    finish(run.superworkflow, replace(run.record, decisions=[rejected]), Tracker())
    assert not (tmp_path / "night.parquet").exists()
    finish(run.superworkflow, run.record, Tracker())
    assert pq.read_table(tmp_path / "night.parquet").equals(run["embeddings"].to_arrow())

    again = sw.plan("node2vec", edges=f"{address}?table=edges", labels=str(graph_files[1]), params=settings,
                    store=str(store))  # fmt: skip
    assert again.loc["index", "state"] == "cached"
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert password.encode() not in kept
    assert b"?table=edges" in kept, "the record says where its rows are from"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("nothing=out.parquet", "no such output"),
        ("embeddings=out.csv", "no place for a table"),
        ("embeddings=sqlite:///a.db?table=t", "tables of PostgreSQL"),
    ],
)
def test_a_wrong_export_is_refused_before_anything_runs(
    given: str, words: str, graph_files: tuple[Path, Path], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=words):
        sw.run("node2vec", edges=str(graph_files[0]), store=str(tmp_path), export=[given])
