"""Pictures of specs with names as hostile as can be, and of a subgraph; left out where they would be too large."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superworkflow.infra.storage.dataset import DatasetWriter
from superworkflow.infra.storage.manifest import InputEntry
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.sample import drawn
from superworkflow.tasks.sample.drawn import Subgraph, rings, subgraph_of
from superworkflow.tasks.sample.picture import draw
from tests.datasets import commit
from tests.tasks.heterographs import write_heterograph
from tests.tasks.subgraphs import some_block, some_graph, write_subgraphs


@pytest.mark.parametrize("ops", [0, 4, 41])
@pytest.mark.parametrize("kind", ["seed_op", "symmetric_link_seed_op"])
def test_a_spec_is_drawn(tmp_path, figures, ops, kind):
    hops = [
        {"op_name": f"$op{i}_\n" * 9, "input_op_names": ["s", *(f"$op{i - 1}_\n" * 9 for _ in range(i > 0))],
         "edge_set_name": "\0{}", "sample_size": i + 1, "strategy": "TOP_K"}
        for i in range(ops)
    ]  # fmt: skip
    writer = DatasetWriter(tmp_path / "sampled")
    writer.json("sampled.json", {"spec": {kind: {"op_name": "s", "node_set_name": "n"}, "sampling_ops": hops}})
    draw(commit(writer, "sample", {"name": "sampled"}), tmp_path / "spec.png")
    assert (tmp_path / "spec.png").exists() == (ops < 41)
    assert [len(figure.axes[0].texts) for figure in figures] == ([1 + ops + 2 * ops - (ops > 0)] if ops < 41 else [])


def test_nodes_are_below_what_led_to_them() -> None:
    a, b, c, d, e, f = ((number % 2, number) for number in range(6))
    found = rings(
        Subgraph(dict.fromkeys((a, b, c, d, e, f), ""), [(a, b), (b, a), (a, c), (c, d), (c, e), (b, e)], [a])
    )
    assert {node: hop for node, (hop, _) in found.items()} == {a: 0, b: 1, c: 1, d: 2, e: 2, f: 3}
    assert len({angle for hop, angle in found.values() if hop}) == 3
    (_, one), (_, two), (_, three) = found[b], found[c], found[d]
    assert one < two < 2 * math.pi
    assert abs(three - two) < math.pi


def test_a_subgraph_is_drawn(tmp_path: Path, figures: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    made = write_heterograph(tmp_path / "made", *some_graph(rng))
    graph = HeteroGraph.open(made)
    block = some_block(graph, rng, 12, ("paper",))
    one = subgraph_of(graph, block, 4)
    assert len(one.nodes) == sum(int(starts[5] - starts[4]) for starts in block.node_starts)
    assert len(one.edges) == sum(int(starts[5] - starts[4]) for starts in block.edge_starts)
    assert [one.nodes[seed] for seed in one.seeds] == [graph.ids("paper")[int(block.seeds[4])].as_py()]
    ids = {each for name in graph.node_sets for each in graph.ids(name).to_pylist()}
    place = tmp_path / "store" / made.manifest.stage / made.digest
    place.parent.mkdir(parents=True)
    made.location.local_path.rename(place)  # type: ignore[union-attr]
    sampled = write_subgraphs(tmp_path / "store" / "sample" / ("0" * 32), graph, {"train": [[block]]})
    named = {"graph": InputEntry(digest=made.digest, stage=made.manifest.stage)}
    monkeypatch.setattr(sampled, "manifest", sampled.manifest.model_copy(update={"inputs": named}))
    drawn.draw(sampled, tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 1000
    (axes,) = figures[0].axes
    labels = {text.get_text() for text in axes.texts} - {""}
    assert labels
    assert labels <= ids
    assert len(figures[0].legends[0].get_texts()) >= 2
    monkeypatch.setattr(drawn, "MOST_DRAWN", 0)
    drawn.draw(sampled, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
    place.rename(tmp_path / "gone")
    drawn.draw(sampled, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
