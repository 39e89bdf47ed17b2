"""The superworkflow `full_graph` end to end: plan, run, a model that predicts new nodes, and a second run judged."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from superworkflow.__main__ import main
from superworkflow.tasks.publish.serving import load
from tests.flows.command_line import run_document

NODES = 120
STAGES = [
    "heterograph", "node_labels", "aggregate", "train_full", "infer", "correct", "baselines", "score",
    "publish_predictions",
]  # fmt: skip


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two communities, of which features say little, and a file of splits."""
    folder, rng = tmp_path_factory.mktemp("full"), np.random.default_rng(4)
    pairs = sorted({(int(u), int(v)) for u, v in rng.integers(0, NODES, (2400, 2)) if u < v and (u - v) % 2 == 0})
    numbers = rng.normal(size=(NODES, 4)) + (np.arange(NODES) % 2)[:, None]
    texts = {
        "edges": "source,target\n" + "".join(f"v{u},v{v}\n" for u, v in pairs),
        "features": "node,a,b,c,d\n"
        + "".join(",".join([f"v{i}", *(f"{x:.4f}" for x in row)]) + "\n" for i, row in enumerate(numbers)),
        "labels": "node,label\n" + "".join(f"v{i},{('even', 'odd')[i % 2]}\n" for i in range(NODES)),
        "split": "node,split\n"
        + "".join(f"v{i},{('train', 'validation', 'test', 'test')[i // 2 % 4]}\n" for i in range(NODES)),
    }
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)
    return ["full-graph", *(word for name in texts for word in (f"--{name}", str(folder / f"{name}.csv")))]


def test_from_edges_to_a_model(given, tmp_path: Path, prefect_api: str, capsys: pytest.CaptureFixture[str]):
    store = tmp_path / "store"
    words = [*given, "--store", str(store), "--set", "train_full.epochs=30"]
    assert main(["plan", *words, "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert [(stage["name"], stage["state"]) for stage in planned] == [(name, "run") for name in STAGES]
    run = run_document([*words, "--register", "parity"], prefect_api)
    assert [stage["name"] for stage in run["stages"]] == STAGES
    assert run["metrics"]["score.accuracy@test"] > 0.9
    assert pq.read_metadata(run["timeline"]).num_rows == 30 * (2 * (8 + 4) + 1)
    (picture,) = store.glob("mlflow/artifacts/*/artifacts/pictures/*pipeline.png")
    assert picture.stat().st_size > 10_000
    bundle = next((store / "publish_predictions").glob("*/bundle.json")).parent
    request = pd.DataFrame({
        "node": ["v3", "new"], "features": [None, [0.0] * 4], "neighbors": [None, ["v2", "v4", "v8"]]
    })  # fmt: skip
    assert load(bundle).predict(request, {})["predicted"].tolist() == ["odd", "even"]
    out = tmp_path / "found.parquet"
    assert main(["predict", "parity", *given[1:5], "--store", str(store), "--no-tracking", "--out", str(out)]) == 0
    assert pq.read_table(out)["predicted"].equals(pq.read_table(run["predictions"])["predicted"])
    again = run_document(
        [*words, "train_full.model=gat", "full_graph.partitioned=true", "--register", "parity", "--tolerance", "1"],
        prefect_api,
    )
    assert "partition" in [stage["name"] for stage in again["stages"]]
    assert [stage["name"] for stage in again["stages"] if stage["state"] == "cached"] == [
        "heterograph", "node_labels", "baselines"
    ]  # fmt: skip
    (decision,) = again["promotion"]
    assert decision["metric"] == "score.accuracy@test"
