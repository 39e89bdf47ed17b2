"""Links to validate and test that a user gives, and ranks among given pairs by the formulas of ogb's evaluator."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import baselines_links, holdout_links, infer, score_links
from superworkflow.tasks.lib.gnn.sampler.links import links_of, read_held_out
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.metrics.ranks import has_own
from superworkflow.tasks.train import STAGE
from tests.tasks.gnn_graphs import NODES, one_kind, two_kinds
from tests.tasks.index_helpers import run_stage

TRAIN = {"hidden": 16, "batch": 30, "epochs": 8, "fanouts": "4,all", "dropout": 0.0, "learning_rate": 0.01}
EACH = 7


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return one_kind(tmp_path_factory.mktemp("given") / "graph")


@pytest.fixture(scope="module")
def rows(whole: Dataset) -> list[tuple[int, int, str, int]]:
    """Links of ten sources each to validate and to test, seven pairs for each source, and links to train on."""
    links = links_of(HeteroGraph.open(whole).rows("edge"), True)
    there, rng = {tuple(pair) for pair in links.tolist()}, np.random.default_rng(4)
    _, firsts = np.unique(links[:, 1], return_index=True)
    found: list[tuple[int, int, str, int]] = []
    for split, places in (("valid", firsts[:10]), ("test", firsts[10:20])):
        for target, source in links[places].tolist():  # from the larger number to the smaller one
            found.append((source, target, split, 1))
            strangers = [node for node in rng.permutation(NODES).tolist()
                         if node != source and not {(source, node), (node, source)} & there]  # fmt: skip
            found += [(source, node, split, 0) for node in strangers[:EACH]]
    held = set(firsts[:20].tolist())
    return found + [(u, v, "train", 1) for i, (u, v) in enumerate(links.tolist()) if i not in held]


def _file(folder: Path, rows: list[tuple[int, int, str, int]]) -> str:
    lines = [f"n{u:03},n{v:03},{split},{label}\n" for u, v, split, label in rows]
    (folder / "links.csv").write_text("source,target,split,label\n" + "".join(lines))
    return str(folder / "links.csv")


@pytest.mark.parametrize("separator", ["\t", ";"])
def test_columns_between_tabs_or_semicolons(whole: Dataset, rows, tmp_path: Path, separator: str) -> None:
    path = Path(_file(tmp_path, rows))
    other = tmp_path / "links.tsv"
    other.write_text(path.read_text().replace(",", separator))
    made = [
        run_stage(holdout_links.STAGE, {}, {"graph": whole.uri, "links": str(each)}, tmp_path / each.suffix)
        for each in (path, other)
    ]
    assert made[0].manifest.files == made[1].manifest.files


def test_ranks_among_given_pairs(whole: Dataset, rows, tmp_path: Path) -> None:
    inputs = {"graph": whole.uri, "links": _file(tmp_path, rows)}
    graph = run_stage(holdout_links.STAGE, {}, inputs, tmp_path / "links")
    opened = HeteroGraph.open(graph)
    wanted = {split: [row[:2] for row in rows if row[2] == split and row[3]] for split in ("valid", "test")}
    assert [tuple(pair) for pair in read_held_out(opened).links["test"].tolist()] == wanted["test"]
    left = {tuple(pair) for pair in links_of(opened.rows("edge"), True).tolist()}
    assert left == {tuple(sorted(row[:2])) for row in rows if row[2] == "train"}
    given = {"graph": graph.uri}
    network = run_stage(STAGE, TRAIN | {"decoder": "dot"}, given, tmp_path / "train")
    found = run_stage(infer.STAGE, {}, given | {"network": network.uri}, tmp_path / "infer")
    vectors = np.array(found.table("embeddings.parquet", ["vector"])["vector"].to_pylist())
    score_of = {row: float(vectors[row[0]] @ vectors[row[1]]) for row in rows if row[2] == "test"}
    links = [row for row in score_of if row[3]]
    own = np.array([score_of[row] for row in links])
    of_source = np.array([[score_of[row] for row in score_of if row[0] == link[0] and not row[3]] for link in links])
    simple = run_stage(baselines_links.STAGE, {}, given, tmp_path / "baselines")
    assert 0 < simple.stats["metrics.adamic_adar_auc@test"] <= 1
    given["predictions"] = found.uri
    for among, compared in (("auto", of_source), ("all", np.tile(of_source.reshape(1, -1), (len(links), 1)))):
        scored = run_stage(score_links.STAGE, {"among": among, "k": 3}, given, tmp_path / among).json("metrics.json")
        ranks = 1 + ((compared >= own[:, None]).sum(1) + (compared > own[:, None]).sum(1)) / 2
        assert scored["mrr@test"] == pytest.approx((1 / ranks).mean())
        assert scored["hits_at_k@test"] == pytest.approx((ranks <= 3).mean())
        both = np.concatenate([own, of_source.reshape(-1)])
        assert scored["auc@test"] == pytest.approx(roc_auc_score(np.arange(len(both)) < len(own), both))


def test_pairs_of_a_source_with_two_links() -> None:
    links, pairs = np.array([[0, 1], [0, 2], [3, 4]]), np.array([[0, 5], [0, 6], [0, 7], [0, 8], [3, 5], [3, 6]])
    assert has_own(links, pairs)
    assert not has_own(links, pairs[:-1])
    assert not has_own(links, np.concatenate([pairs, [[9, 5]]]))


def test_without_pairs_some_are_drawn_that_are_no_links(whole: Dataset, rows, tmp_path: Path) -> None:
    kept = [row for row in rows if row[3] and row[2] == "test"]
    strangers = [(row[0], row[1], "test", 1) for row in rows if row[2] == "test" and not row[3]][:5]
    inputs = {"graph": whole.uri, "links": _file(tmp_path, kept + strangers)}
    found = read_held_out(HeteroGraph.open(run_stage(holdout_links.STAGE, {}, inputs, tmp_path / "links")))
    assert (len(found.links["validation"]), len(found.links["test"])) == (0, 15)
    everything = {tuple(pair) for pair in links_of(HeteroGraph.open(whole).rows("edge"), True).tolist()}
    everything |= {tuple(sorted(row[:2])) for row in strangers}
    assert not everything & {tuple(sorted(pair)) for pair in found.others["test"].tolist()}
    assert not found.candidates


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(0, 3, "valid", 1)], "no links to test"),
        ([(0, 3, "test", 1), (3, 0, "valid", 1)], "a link is in two splits: 'n003' in row 2"),
        ([(0, 3, "test", 1), (0, 3, "test", 0)], "as a link and as none: 'n000' in row 2"),
        ([(0, 999, "test", 1)], "not in the graph: 'n999' in row 1.*has 'n000'"),
        ([(0, 3, "later", 1)], "no such split: 'later' in row 1.*Valid: train, validation, test"),
        ([(0, 3, "test", 2)], "neither 1 nor 0: '2' in row 1"),
        ([(0, 0, "test", 1)], "linked with itself"),
        ([(0, 3, "train", 0)], r"for validation and test.*train\.negatives"),
        ([(0, 1, "test", 1), (0, 1, "train", 1)], "two splits"),
        ([(0, 3, "test", 1), (0, 6, "valid", 0)], "split validation has pairs that are no links, and no links"),
    ],
    ids=["test", "twice", "both", "stranger", "split", "label", "loop", "negative", "trained", "lone"],
)
def test_refused(whole: Dataset, rows, message: str, tmp_path: Path) -> None:
    inputs = {"graph": whole.uri, "links": _file(tmp_path, rows)}
    with pytest.raises(UserError, match=message):
        run_stage(holdout_links.STAGE, {}, inputs, tmp_path / "links")


def test_links_to_train_on_that_are_not_in_the_graph(whole: Dataset, rows, tmp_path: Path) -> None:
    stranger = next(row for row in rows if not row[3])
    moved = [*(row for row in rows if row[3]), (*stranger[:2], "train", 1)]
    inputs = {"graph": whole.uri, "links": _file(tmp_path, moved)}
    with pytest.raises(UserError, match=r"split train are not in the graph.*all links to train on"):
        run_stage(holdout_links.STAGE, {}, inputs, tmp_path / "links")


def test_other_columns(whole: Dataset, tmp_path: Path) -> None:
    (tmp_path / "links.csv").write_text("a,b\n1,2\n")
    inputs = {"graph": whole.uri, "links": str(tmp_path / "links.csv")}
    with pytest.raises(UserError, match=r"other columns.*a, b.*Give a header source,target,split"):
        run_stage(holdout_links.STAGE, {}, inputs, tmp_path / "links")


def test_part_files_of_links_between_two_node_sets(tmp_path: Path) -> None:
    """In Parquet, without labels; hidden links leave the set and its reverse."""
    whole = two_kinds(tmp_path / "graph")
    writes = links_of(HeteroGraph.open(whole).rows("writes"), False).tolist()
    (tmp_path / "links").mkdir()
    for number, (split, (author, paper)) in enumerate(zip(("validation", "test"), writes, strict=False)):
        table = pa.table({"source": [f"a{author:02}"], "target": [f"p{paper:02}"], "split": [split]})
        pq.write_table(table, tmp_path / "links" / f"part-{number:05}.parquet")
    inputs = {"graph": whole.uri, "links": str(tmp_path / "links")}
    graph = HeteroGraph.open(run_stage(holdout_links.STAGE, {"edges": "writes"}, inputs, tmp_path / "held"))
    found = read_held_out(graph)
    assert [found.links[split].tolist() for split in ("validation", "test")] == [[writes[0]], [writes[1]]]
    assert links_of(graph.rows("writes"), False).tolist() == writes[2:]
    assert sorted(links_of(graph.rows("written"), False)[:, ::-1].tolist()) == writes[2:]
