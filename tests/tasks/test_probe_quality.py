"""Scores of the probe on citation graphs with sampled neighbours, sizes 5 and 5, and Planetoid's split."""

import pytest

from superworkflow.tasks import load_stage
from tests.tasks.index_helpers import run_stage
from tests.tasks.planetoid import write_planetoid


@pytest.mark.parametrize(("name", "least"), [("cora", 0.80), ("citeseer", 0.69)])
def test_citation_graphs(shared_data, tmp_path, name, least):
    folder = write_planetoid(shared_data / "planetoid", name, tmp_path / name)

    def made(stage: str, params: dict, **inputs):
        return run_stage(
            load_stage(stage), params, {key: str(given) for key, given in inputs.items()}, tmp_path / stage
        )

    graph = made("heterograph", {}, graph=folder).location.local_path
    inputs = {"graph": graph, "spec": folder / "spec.pbtxt", "seeds": folder / "seeds.csv"}
    sampled = made("sample", {}, **inputs)
    subgraphs = sampled.location.local_path
    stats = made("probe", {"label": "paper.label", "C": 100.0}, graph=graph, subgraphs=subgraphs).stats
    assert (stats["validation_subgraphs"], stats["test_subgraphs"]) == (500, 1000)
    assert stats["features"] == sampled.stats["path_values"]  # by which `plan` knows how wide it is
    assert float(stats["metrics.accuracy@test"] or 0) >= least
