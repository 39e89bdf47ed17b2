"""Links with a direction: both ways are held out together, and the decoder distinguishes a link from its reverse."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import baselines_links, holdout_links, infer, publish_predictions, score_links, train
from superworkflow.tasks.lib.gnn.sampler.links import directed_links_of, is_one_way, read_held_out
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.publish import serving
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage

NODES = 60


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Edges from smaller numbers to larger ones, a tenth of them both ways, and some loops."""
    rng = np.random.default_rng(5)
    names = [f"n{i:02}" for i in range(NODES)]
    ends = {(min(u, v), max(u, v)) for u, v in rng.integers(0, NODES, (700, 2)).tolist() if u != v}
    back = {(v, u) for u, v in ends if rng.random() < 0.1}
    rows = sorted((names[u], names[v]) for u, v in ends | back | {(3, 3), (8, 8)})
    tables = {"edge": Edges("node", "node", rows), "reverse_edge": Edges("node", "node", reversed_of="edge")}
    return write_heterograph(tmp_path_factory.mktemp("directed") / "graph", {"node": Nodes(names)}, tables)


def test_both_ways_are_held_out_together(whole: Dataset, tmp_path: Path) -> None:
    graph = HeteroGraph.open(
        run_stage(holdout_links.STAGE, {"directed": "auto"}, {"graph": whole.uri}, tmp_path / "held")
    )
    held_out, every = read_held_out(graph), directed_links_of(HeteroGraph.open(whole).rows("edge"))
    assert held_out.directed
    left = {tuple(pair) for pair in directed_links_of(graph.rows("edge")).tolist()}
    hidden = [tuple(pair) for split in ("validation", "test") for pair in held_out.links[split].tolist()]
    assert len(hidden) == len(set(hidden))
    assert {*hidden} | left == {tuple(pair) for pair in every.tolist()}
    assert not {pair[::-1] for pair in hidden} & left
    others = held_out.others["test"]
    assert len(others) == len(held_out.links["test"])
    assert 0 < (others[:, 0] < others[:, 1]).sum() < len(others)  # in a random direction
    plain = run_stage(holdout_links.STAGE, {}, {"graph": whole.uri}, tmp_path / "plain")
    pairs = read_held_out(HeteroGraph.open(plain)).links["test"]
    assert (pairs[:, 0] < pairs[:, 1]).all()


def test_direction_is_learned_and_served(whole: Dataset, tmp_path: Path) -> None:
    held = run_stage(
        holdout_links.STAGE, {"test_share": 0.2, "directed": True}, {"graph": whole.uri}, tmp_path / "held"
    )
    given = {"graph": held.uri}
    params = {"hidden": 16, "epochs": 25, "patience": 0, "batch": 64, "learning_rate": 0.01}
    given["network"] = run_stage(train.STAGE, params, given, tmp_path / "train").uri
    found = run_stage(infer.STAGE, {}, given, tmp_path / "infer")
    simple = run_stage(baselines_links.STAGE, {}, {"graph": held.uri}, tmp_path / "simple")
    judged = {"graph": held.uri, "predictions": found.uri, "baselines": simple.uri}
    metrics = run_stage(score_links.STAGE, {}, judged, tmp_path / "score").json("metrics.json")
    assert metrics["direction@test"] > 0.7  # the order of the numbers
    graph = HeteroGraph.open(held)
    tests, table = read_held_out(graph).links["test"], found.table("predictions.parquet").to_pandas()
    linked = table[(table["split"] == "test") & table["linked"]]
    names = np.array(graph.ids("node").to_pylist())
    assert linked["source"].tolist() == names[tests[:, 0]].tolist()
    bundle = run_stage(
        publish_predictions.STAGE, {}, given | {"predictions": found.uri}, tmp_path / "bundle"
    )  # fmt: skip
    model = serving.load(Path(bundle.uri))
    ends = linked[["source", "target"]].reset_index(drop=True)
    there = model.predict(ends, {})
    np.testing.assert_allclose(there["score"], linked["score"], atol=1e-4)
    back = model.predict(ends.rename(columns={"source": "target", "target": "source"}), {})
    one_way = is_one_way(tests, tests)
    share = (there["score"].to_numpy() > back["score"].to_numpy())[one_way].mean()
    assert share == pytest.approx(metrics["direction@test"])
    new = {"source": "n05", "target": "new", "target_neighbors": {"edge": ["n50", "n51"], "reverse_edge": ["n40"]}}
    answer = model.predict(pd.DataFrame([new]), {})
    assert answer["error"].tolist() == [""]
    assert np.isfinite(answer["score"]).all()
