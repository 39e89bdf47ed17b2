"""The loader: stored batches and those sampled now are the same, in an order of seed and epoch alone."""

import io
import pickle
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch

from superworkflow.infra.base.errors import DatasetDamaged, UserError
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.loader import Batch, Subgraphs
from superworkflow.loader.batch import RaggedTensor
from superworkflow.loader.merge import Window
from superworkflow.loader.order import batch_spans, windows
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph, Ragged
from superworkflow.tasks.sample import STAGE
from tests.tasks.heterographs import Edges, write_heterograph
from tests.tasks.subgraphs import some_block, some_graph, write_subgraphs

SPEC = """
seed_op { op_name: "seed" node_set_name: "paper" }
sampling_ops { op_name: "cited" input_op_names: "seed" edge_set_name: "cites" sample_size: 2 strategy: RANDOM_UNIFORM }
sampling_ops {
  op_name: "authors" input_op_names: "seed" input_op_names: "cited" edge_set_name: "written by" sample_size: 1
  strategy: RANDOM_UNIFORM
}
sampling_ops { op_name: "more" input_op_names: "authors" edge_set_name: "writes" sample_size: 3 strategy: TOP_K }
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("loader")
    nodes, edges = some_graph(np.random.default_rng(5), papers=700)
    rng = np.random.default_rng(6)
    pairs = [(f"p{rng.integers(700)}", f"p{rng.integers(700)}") for _ in range(3000)]
    edges["cites"] = Edges("paper", "paper", pairs)
    graph = write_heterograph(folder / "graph", nodes, edges)
    spec = folder / "spec.pbtxt"
    spec.write_text(SPEC)
    params = {"repeats": 3, "fractions": [0.9, 0.1, 0.0]}
    execute(STAGE, params, {"graph": graph.uri, "spec": str(spec)}, str(folder / "sample"), Resources(cpu=2),
            Progress("sample", stream=io.StringIO()))  # fmt: skip
    return graph, Dataset.open(folder / "sample"), spec, params


def same(one: Batch, other: Batch) -> None:
    """All that they hold is equal, bit for bit."""
    assert one.sample_ids == other.sample_ids
    torch.testing.assert_close(one.seeds, other.seeds, rtol=0, atol=0)
    torch.testing.assert_close(one.seed_places, other.seed_places, rtol=0, atol=0)
    for ours, theirs in ((one.nodes, other.nodes), (one.edges, other.edges)):
        assert list(ours) == list(theirs)
        for name in ours:
            left, right = vars(ours[name]), vars(theirs[name])
            for key in left.keys() - {"features", "source", "target"}:
                assert (left[key] is None) == (right[key] is None), (name, key)
                assert left[key] is None or torch.equal(left[key], right[key]), (name, key)
            assert left["features"].keys() == right["features"].keys()
            for key, values in left["features"].items():
                parts = zip(values, right["features"][key], strict=True) if isinstance(values, tuple) else ()
                pairs = list(parts) or [(values, right["features"][key])]
                assert all(a.numpy().tobytes() == b.numpy().tobytes() for a, b in pairs), (name, key)


@pytest.mark.parametrize("shuffle", [True, False])
def test_stored_and_live_batches_are_the_same(made, shuffle):
    graph, sampled, spec, params = made
    stored = Subgraphs(graph, sampled, edge_positions=shuffle, kept_bytes=1 << 30 if shuffle else 0)
    live = Subgraphs.live(graph.uri, spec, params=params, edge_positions=shuffle)
    assert len(stored) == len(live) > 1500
    for epoch in range(2):
        pairs = zip(stored.batches(100, seed=3, epoch=epoch, shuffle=shuffle, threads=2),
                    live.batches(100, seed=3, epoch=epoch, shuffle=shuffle), strict=True)  # fmt: skip
        for one, other in pairs:
            same(one, other)


def test_batches_hold_the_subgraphs_and_their_features(made):
    graph, sampled, *_ = made
    opened = HeteroGraph.open(graph)
    loader = Subgraphs(graph, sampled, split="validation", edge_positions=True)
    whole = loader.picked(np.arange(len(loader)))
    row = 0
    for batch in loader.batches(7, shuffle=False):
        for s in range(len(batch)):
            assert batch.sample_ids[s] == whole.sample_ids[row].as_py()
            assert batch.seeds[s].item() == whole.seeds[row]
            for i, (name, nodes) in enumerate(batch.nodes.items()):
                here = nodes.numbers[nodes.starts[s] : nodes.starts[s + 1]]
                assert (
                    here.tolist() == whole.nodes[i][whole.node_starts[i][row] : whole.node_starts[i][row + 1]].tolist()
                )
                assert (nodes.subgraph[nodes.starts[s] : nodes.starts[s + 1]] == s).all(), name
            for j, edges in enumerate(batch.edges.values()):
                span = slice(edges.starts[s], edges.starts[s + 1])
                first, last = whole.edge_starts[j][row : row + 2]
                assert edges.positions[span].tolist() == whole.positions[j][first:last].tolist()
                begins = [batch.nodes[end].starts[s] for end in (edges.source, edges.target)]
                local = edges.index[:, span] - torch.tensor(begins)[:, None]
                assert local.tolist() == [whole.sources[j][first:last].tolist(), whole.targets[j][first:last].tolist()]
            row += 1
        assert torch.equal(batch.nodes["paper"].numbers[batch.seed_places], batch.seeds)
        for name, edges in batch.edges.items():
            rows = opened.rows(name)
            sources = np.searchsorted(rows.indptr, edges.positions.numpy(), side="right") - 1
            assert batch.nodes[edges.source].numbers[edges.index[0]].tolist() == sources.tolist()
            targets = np.asarray(rows.indices)[edges.positions.numpy()]
            assert batch.nodes[edges.target].numbers[edges.index[1]].tolist() == targets.tolist()
        for kind, items in (("node", batch.nodes), ("edge", batch.edges)):
            for name, part in items.items():
                rows = (part.numbers if kind == "node" else part.positions).numpy()
                for feature, values in part.features.items():
                    expected = getattr(opened, f"{kind}_feature")(name, feature)
                    if isinstance(values, RaggedTensor):
                        assert isinstance(expected, Ragged)
                        lengths = np.diff(expected.starts)[rows]
                        assert torch.diff(values.starts).tolist() == lengths.tolist()
                        parts = [expected.values[expected.starts[row] : expected.starts[row + 1]] for row in rows]
                        np.testing.assert_array_equal(values.values, np.concatenate(parts or [expected.values[:0]]))
                    else:
                        np.testing.assert_array_equal(values.numpy(), np.asarray(expected)[rows])
    assert row == len(loader)
    chosen = next(Subgraphs(graph, sampled, features={"paper": ["title"]}).batches(4))
    titles = opened.node_feature("paper", "title").to_pylist()
    assert chosen.nodes["paper"].features == {"title": [titles[row] for row in chosen.nodes["paper"].numbers.tolist()]}
    assert chosen.edges["writes"].features == {}
    some = next(Subgraphs(graph, sampled).batches(4))
    read = {name for name, edges in some.edges.items() if edges.positions is not None}
    assert read == {"writes", "written by"}  # those that have features


def _ids(batches: Any) -> list[list[str]]:
    return [batch.sample_ids for batch in batches]


def test_workers_and_ranks_share_the_same_batches(made):
    graph, sampled, *_ = made
    loader = pickle.loads(pickle.dumps(Subgraphs(graph, sampled)))
    alone = _ids(loader.batches(64, seed=1, epoch=2))
    assert sorted(chain(*alone)) == sorted(chain(*_ids(loader.batches(50, shuffle=False))))
    assert alone != _ids(loader.batches(64, seed=1, epoch=3))
    assert alone != _ids(loader.batches(64, seed=2, epoch=2))
    shares = [_ids(loader.batches(64, seed=1, epoch=2, rank=rank, ranks=3)) for rank in range(3)]
    assert [share for step in zip(*shares, strict=True) for share in step] == alone[: len(alone) // 3 * 3]
    worker = torch.utils.data.DataLoader(
        loader.dataset(64, seed=1), batch_size=None, num_workers=1, multiprocessing_context="spawn"
    )
    worker.dataset.set_epoch(2)
    assert _ids(worker) == alone
    deal = [list(batch_spans(len(loader), 64, 0, 1, worker, 3, False)) for worker in range(3)]
    assert [deal[i % 3][i // 3].start for i in range(len(alone))] == list(range(0, len(loader), 64))


def test_an_epoch_goes_through_all_once_in_any_order():
    for count in (0, 1, 511, 513, 20_000):
        for shuffle in (False, True):
            order = np.concatenate([np.zeros(0, np.int64), *windows(count, 5, 1, shuffle)])
            assert sorted(order.tolist()) == list(range(count))
            assert shuffle or order.tolist() == list(range(count))
    spans = [
        span for rank in range(2) for worker in range(3) for span in batch_spans(103, 10, rank, 2, worker, 3, False)
    ]
    assert sorted(span.start for span in spans) == list(range(0, 100, 10))
    assert [len(span) for span in batch_spans(103, 10, 0, 1, 0, 1, False)] == [10] * 10 + [3]


def test_what_is_refused(made, tmp_path):
    graph, sampled, *_ = made
    with pytest.raises(UserError, match="no such split"):
        Subgraphs(graph, sampled, split="dev")
    with pytest.raises(UserError, match="paper has no such feature"):
        Subgraphs(graph, sampled, features={"paper": ["absent"]})
    with pytest.raises(UserError, match="no set named absent"):
        Subgraphs(graph, sampled, features={"absent": ["x"]})
    with pytest.raises(UserError, match="at least one subgraph"):
        next(Subgraphs(graph, sampled).batches(0))
    block = Subgraphs(graph, sampled).picked(np.arange(5))
    block.targets[0] = block.targets[0][:-1]
    with pytest.raises(ValueError, match="differ in length"):
        Window([block], np.arange(5))
    small = write_heterograph(tmp_path / "small", *some_graph(np.random.default_rng(0), papers=3))
    with pytest.raises(DatasetDamaged, match="not of this graph"):
        list(Subgraphs(small, sampled).batches(64))


def test_links_and_sets_that_are_empty(tmp_path):
    rng = np.random.default_rng(3)
    graph = write_heterograph(tmp_path / "graph", *some_graph(rng))
    opened = HeteroGraph.open(graph)
    block = some_block(opened, rng, 12, ("paper", "paper"))
    sampled = write_subgraphs(tmp_path / "sample", opened, {"train": [[block]]}, ("paper", "paper"))
    (batch,) = Subgraphs(graph, sampled).batches(12, shuffle=False)
    assert torch.equal(batch.nodes["paper"].numbers[batch.seed_places], batch.seeds)
    readout = batch.nodes["_readout"]
    assert (readout.numbers.tolist(), readout.starts.tolist()) == (list(range(12)), list(range(13)))
    for end, name in enumerate(("_readout/source", "_readout/target")):
        edges = batch.edges[name]
        assert (edges.source, edges.target) == ("paper", "_readout")
        assert edges.index.tolist() == [batch.seed_places[:, end].tolist(), list(range(12))]
    assert batch.nodes["empty.set"].features["x"].shape == (0, 2)
    assert batch.edges["unmet"].index.shape == (2, 0)


def test_pyg_data(made):
    pytest.importorskip("torch_geometric")
    graph, sampled, *_ = made
    batch = next(Subgraphs(graph, sampled).batches(8))
    data = batch.to_pyg()
    assert data.validate()
    assert torch.equal(data["paper"].n_id[data["paper"].seed_index], batch.seeds[:, 0])
    assert torch.equal(data["author", "writes", "paper"].edge_index, batch.edges["writes"].index)


@pytest.mark.parametrize("workers", [0, 2])
def test_pygs_own_loader(made, workers):
    pytest.importorskip("torch_geometric")
    from superworkflow.loader.pyg import node_loader

    graph, _, spec, params = made
    opened, live = HeteroGraph.open(graph), Subgraphs.live(graph, spec, params=params)
    options = {"multiprocessing_context": "spawn", "num_workers": workers} if workers else {}
    batches = list(node_loader(live, 500, shuffle=True, **options))
    seeds = torch.cat([batch["paper"].n_id[: batch["paper"].batch_size] for batch in batches])
    assert sorted(seeds.tolist()) == sorted(live.seeds().tolist())
    whole = live.picked(np.arange(len(live)))
    for batch in batches:
        assert batch.validate()
        papers = batch["paper"]
        assert papers.batch[: papers.batch_size].tolist() == list(range(papers.batch_size))
        assert papers.n_id[: papers.batch_size].tolist() == whole.seeds[papers.input_id].tolist()
        np.testing.assert_array_equal(papers.embedding, opened.node_feature("paper", "embedding")[papers.n_id])
        for j, (name, edges) in enumerate(opened.edge_sets.items()):
            store = batch[edges.source, name, edges.target]
            sources, targets = store.edge_index
            rows = opened.rows(name)
            assert batch[edges.target].n_id[targets].tolist() == rows.indices[store.e_id.numpy()].tolist()
            assert torch.equal(batch[edges.source].batch[sources], batch[edges.target].batch[targets])
            counts = np.diff(whole.edge_starts[j])[papers.input_id]
            assert np.bincount(batch[edges.source].batch[sources], minlength=len(counts)).tolist() == counts.tolist()


def test_dgl_graphs(made):
    dgl = pytest.importorskip("dgl")
    graph, sampled, *_ = made
    batch = next(Subgraphs(graph, sampled).batches(8))
    whole = batch.to_dgl()
    parts = dgl.unbatch(whole)
    assert len(parts) == len(batch)
    for s, part in enumerate(parts):
        nodes = batch.nodes["paper"]
        assert torch.equal(part.nodes["paper"].data[dgl.NID], nodes.numbers[nodes.starts[s] : nodes.starts[s + 1]])
    torch.testing.assert_close(whole.nodes["paper"].data["embedding"], batch.nodes["paper"].features["embedding"])
