"""An earlier network on a later graph, judged on nodes that it has not learned."""

import numpy as np
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks import heterograph, infer, score, train
from tests.tasks.index_helpers import run_stage

SPLITS = ("train", "validation", "test")


def graph_of(folder, nodes, turn, width=3):
    """Two communities; splits by number, rotated by `turn`."""
    folder.mkdir()
    rng = np.random.default_rng(nodes)
    pairs = {(int(u), int(v)) for u, v in rng.integers(0, nodes, (10 * nodes, 2)) if u < v and (u - v) % 2 == 0}
    (folder / "edges.csv").write_text("".join(f"n{u:02},n{v:02}\n" for u, v in sorted(pairs)))
    values = rng.normal(size=(nodes, width)) + (np.arange(nodes) % 2)[:, None]
    rows = [",".join([f"n{i:02}", *(f"{x:.4f}" for x in row)]) for i, row in enumerate(values)]
    (folder / "features.csv").write_text("node," + ",".join("abcd"[:width]) + "\n" + "\n".join(rows))
    lines = [f"n{i:02},{i % 2},{SPLITS[(i // 2 + turn) % 3]}\n" for i in range(nodes)]
    (folder / "labels.csv").write_text("node,label,split\n" + "".join(lines))
    given = {name: str(folder / f"{name}.csv") for name in ("edges", "features", "labels")}
    return str(run_stage(heterograph.STAGE, {}, given, folder / "graph").location.local_path)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Champion's and challenger's graphs, networks and predictions."""
    folder = tmp_path_factory.mktemp("again")
    found = []
    for name, nodes, turn in (("champion", 60, 0), ("challenger", 66, 1)):
        graph = graph_of(folder / name, nodes, turn)
        params = {"hidden": 8, "epochs": 3, "batch": 16, "fanouts": "5,5"}
        network = run_stage(train.STAGE, params, {"graph": graph}, folder / f"{name}-train").uri
        given = {"graph": graph, "network": network}
        found.append((graph, network, run_stage(infer.STAGE, {}, given, folder / f"{name}-infer")))
    return found


def test_the_champion_is_judged_by_what_it_has_not_learned(both, tmp_path):
    (_, network, seen), (graph, own, _) = both
    given = {"graph": graph, "network": network, "splits": own}
    found = run_stage(infer.STAGE, {}, given, tmp_path / "infer")
    rows = found.table("predictions.parquet").to_pylist()
    assert len(rows) == 66
    assert [row["split"] for row in rows] == [SPLITS[(i // 2 + 1) % 3] for i in range(66)]
    fair = [row for i, row in enumerate(rows) if row["split"] == "test" and (i >= 60 or SPLITS[i // 2 % 3] == "test")]
    assert [row["node"] for row in fair] == ["n62", "n63"]
    given = {"predictions": found.uri, "seen": seen.uri}
    scored = run_stage(score.STAGE, {}, given, tmp_path / "score")
    right = [row["predicted"] == row["label"] for row in fair]
    assert scored.stats["metrics.accuracy@test"] == pytest.approx(np.mean(right))


def test_splits_of_another_graph_and_other_features_are_refused(both, tmp_path):
    (_, network, _), (graph, own, _) = both
    with pytest.raises(UserError, match="splits are those of another graph"):
        run_stage(infer.STAGE, {}, {"graph": graph, "network": own, "splits": network}, tmp_path / "infer")
    other = graph_of(tmp_path / "wide", 60, 0, width=2)
    with pytest.raises(UserError, match="trained on another graph"):
        run_stage(infer.STAGE, {}, {"graph": other, "network": network}, tmp_path / "wide-infer")
