"""The picture of a spec: drawn for specs as hostile as names can be, and left out where it would be too large."""

from __future__ import annotations

import pytest

from superworkflow.infra.storage.dataset import DatasetWriter
from superworkflow.infra.storage.filesystem import Location
from superworkflow.tasks.sample.picture import draw
from tests.tasks.embedding_inputs import _commit


@pytest.mark.parametrize("ops", [0, 4, 41])
@pytest.mark.parametrize("kind", ["seed_op", "symmetric_link_seed_op"])
def test_a_spec_is_drawn(tmp_path, figures, ops, kind):
    hops = [
        {"op_name": f"$op{i}_\n" * 9, "input_op_names": ["s", *(f"$op{i - 1}_\n" * 9 for _ in range(i > 0))],
         "edge_set_name": "\0{}", "sample_size": i + 1, "strategy": "TOP_K"}
        for i in range(ops)
    ]  # fmt: skip
    writer = DatasetWriter(Location.of(tmp_path / "sampled"))
    writer.json("sampled.json", {"spec": {kind: {"op_name": "s", "node_set_name": "n"}, "sampling_ops": hops}})
    draw(_commit(writer, "sample", "sampled", 0, {}), tmp_path / "spec.png")
    assert (tmp_path / "spec.png").exists() == (ops < 41)
    assert [len(figure.axes[0].texts) for figure in figures] == ([1 + ops + 2 * ops - (ops > 0)] if ops < 41 else [])
