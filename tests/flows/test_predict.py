"""A registered network on new data: `superworkflow predict` for a graph, and the lines of docs/gnn.md for a node."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import superworkflow as sw
from superworkflow.__main__ import main
from tests import warm
from tests.flows.command_line import run_document

NODES, LATER = 120, 150
PAGE = Path(__file__).parents[2] / "docs" / "gnn.md"


def write_graph(folder: Path, nodes: int, first: str, columns: str = "abcd") -> dict[str, str]:
    """Two communities: edges, features that say little, labels; names begin with `first`."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(nodes)
    pairs = sorted({(int(u), int(v)) for u, v in rng.integers(0, nodes, (20 * nodes, 2)) if u < v and (u - v) % 2 == 0})
    numbers = rng.normal(size=(nodes, len(columns))) + (np.arange(nodes) % 2)[:, None]
    (folder / "edges.csv").write_text("source,target\n" + "".join(f"{first}{u},{first}{v}\n" for u, v in pairs))
    rows = [",".join([f"{first}{i}", *(f"{x:.4f}" for x in row)]) for i, row in enumerate(numbers)]
    (folder / "features.csv").write_text(f"node,{','.join(columns)}\n" + "\n".join(rows))
    (folder / "labels.csv").write_text("node,label\n" + "".join(f"{first}{i},{'eo'[i % 2]}\n" for i in range(nodes)))
    return {name: str(folder / f"{name}.csv") for name in ("edges", "features", "labels")}


def words_of(files: dict[str, str], *names: str) -> list[str]:
    return [word for name in names for word in (f"--{name}", files[name])]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, prefect_api: str) -> Path:
    """Folder with the default store, in which the model `papers` is registered."""
    folder = tmp_path_factory.mktemp("predict")
    files = write_graph(folder / "first", NODES, "p")
    given = ["gnn", *words_of(files, "edges", "features", "labels"), "--store", str(folder / "superworkflow-store")]
    run_document([*given, "--set", "train.epochs=20", "train.hidden=16", "--register", "papers"], prefect_api)
    return folder


def test_a_new_node_in_five_lines(home: Path) -> None:
    """The lines of the guide, as they are."""
    (block,) = [each for each in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "load_model" in each]
    assert len(list(filter(None, block.splitlines()))) == 5
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "PYTHONPATH"))}
    done = subprocess.run([sys.executable, "-c", block], cwd=home, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = {name: float(share) for name, share in re.findall(r"'(\w)': ([\d.e-]+)", done.stdout)}
    assert found.keys() == {"e", "o"}
    assert sum(found.values()) == pytest.approx(1, abs=1e-4)


def test_a_whole_new_graph(
    home: Path, prefect_api: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files, store, out = write_graph(home / "later", LATER, "q"), home / "superworkflow-store", home / "found.parquet"
    given = [*words_of(files, "edges", "features"), "--store", str(store)]
    words = ["predict", "papers", *given, "--out", str(out), "--json"]
    done = warm.run(words, timeout=600, env=os.environ | {"PREFECT_API_URL": prefect_api})
    assert done.returncode == 0, done.stderr[-4000:]
    run = json.loads(done.stdout)
    assert [stage["name"] for stage in run["stages"]] == ["heterograph", "infer", "tabulate"]
    assert Path(run["predictions"]).read_bytes() == out.read_bytes()
    table = pq.read_table(out)
    assert table.column_names == ["node", "predicted", "probability", "probability_e", "probability_o"]
    assert len(table) == LATER
    rows = table.to_pylist()
    assert np.mean([row["predicted"] == "eo"[int(row["node"][1:]) % 2] for row in rows]) > 0.9
    assert [max(row["probability_e"], row["probability_o"]) for row in rows] == pytest.approx(
        [row["probability"] for row in rows]
    )
    assert [row["probability_e"] + row["probability_o"] for row in rows] == pytest.approx([1] * LATER, abs=1e-5)
    # Any name of the model is the same network, and what is there is not computed again.
    (network,) = [str(path.parent) for path in (store / "train").glob("*/manifest.json")]
    assert main(["plan", "gnn_predict", "--network", network, *given, "--json"]) == 0
    assert {stage["state"] for stage in json.loads(capsys.readouterr().out)} == {"cached"}
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    again = sw.predict("papers", store=str(store), tracking=False, edges=files["edges"], features=files["features"])
    assert set(again.stages["state"]) == {"cached"}
    assert again["predictions"].to_arrow().equals(table)


WORKERS = "stages:\n  infer: {engine: workers, resources: {cpu: 0.5, workers: {count: 2, cpu: 1, memory: 2Gi}}}\n"


@pytest.mark.slow
def test_on_workers(home: Path, tmp_path: Path, prefect_api: str) -> None:
    """The same names of the datasets as in process, and the same probabilities."""
    files, profile = write_graph(tmp_path / "graph", 60, "r"), tmp_path / "workers.yaml"
    profile.write_text(WORKERS)
    (network,) = [str(path.parent) for path in (home / "superworkflow-store" / "train").glob("*/manifest.json")]
    found = []
    for store, more in (("alone", []), ("parts", ["--profile", str(profile), "--set", "gnn_predict.partitioned=true"])):
        words = [
            *words_of(files, "edges", "features"),
            "--store",
            str(tmp_path / store),
            "--no-tracking",
            "--json",
            *more,
        ]
        done = warm.run(["predict", network, *words], timeout=600, env=os.environ | {"PREFECT_API_URL": prefect_api})
        assert done.returncode == 0, done.stderr[-4000:]
        run = json.loads(done.stdout)
        outputs = {stage["name"]: Path(stage["output"]).name for stage in run["stages"]}
        found.append((outputs, pq.read_table(run["predictions"]).to_pydict()))
    (alone, table), (parts, other) = found
    assert parts.keys() - alone.keys() == {"partition", "shard"}
    assert alone.items() <= parts.items()
    assert table["node"] == other["node"]
    assert table["predicted"] == other["predicted"]
    assert other["probability_e"] == pytest.approx(table["probability_e"], abs=1e-5)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("paper", "paper"),
        ("papers/7", "papers version 7"),
        ("papers@best", "no version of the model has this alias (got 'best'). It has: current"),
        ("papers/x", "no version of a model, nor the URI of a dataset"),
        ("first", "this dataset is no model that can be applied"),
    ],
)
def test_what_names_no_model(home: Path, model: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    if model == "first":
        model = str(next((home / "superworkflow-store" / "heterograph").glob("*/manifest.json")).parent)
    given = words_of({"edges": str(home / "first" / "edges.csv")}, "edges")
    assert main(["predict", model, *given, "--store", str(home / "superworkflow-store")]) == 2
    assert message in capsys.readouterr().err


def test_a_file_that_cannot_be_written(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["predict", "papers", "--edges", "edges.csv", "--store", str(home / "superworkflow-store")]
    assert main([*given, "--out", str(home / "nowhere" / "found.parquet")]) == 2
    assert "its folder does not exist" in capsys.readouterr().err
    assert main([*given, "--out", str(home)]) == 2
    assert "is a folder" in capsys.readouterr().err
