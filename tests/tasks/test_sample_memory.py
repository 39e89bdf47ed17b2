"""`plan` predicts the peak memory of sampling within a fifth, held against real processes of two sizes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.sample import STAGE
from superworkflow.tasks.sample.params import SampleParams
from tests.tasks.sampling import PlainGraph

SPEC = """
seed_op { op_name: "seed" node_set_name: "a" }
sampling_ops { op_name: "one" input_op_names: "seed" edge_set_name: "aa" sample_size: 15 strategy: RANDOM_UNIFORM }
sampling_ops { op_name: "two" input_op_names: "one" edge_set_name: "aa" sample_size: 10 strategy: RANDOM_UNIFORM }
"""


@pytest.mark.slow
def test_peak_memory(tmp_path: Path) -> None:
    spec = tmp_path / "spec.pbtxt"
    spec.write_text(SPEC)
    for name, nodes, edges in (("compile", 100, 1000), ("small", 2000, 20_000), ("large", 100_000, 6_000_000)):
        pairs = np.random.default_rng(0).integers(0, nodes, (edges, 2))
        pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        graph = PlainGraph({"a": nodes}, {"aa": ("a", "a")}, {"aa": pairs}).write(tmp_path / name)
        seeds, output, resources = tmp_path / f"{name}.csv", tmp_path / f"{name}-made", Resources(cpu=2)
        seeds.write_text("\n".join(["id", *(f"a{n:04}" for n in range(min(nodes, 3000))), ""]))
        command = [sys.executable, "-P", "-m", "superworkflow", "stage", "sample", "--output", str(output)]
        command += ["--resources-json", resources.model_dump_json(), "--params-json", json.dumps({"repeats": 3})]
        inputs = {"graph": graph.uri, "spec": str(spec), "seeds": str(seeds)}
        command += [part for key, uri in inputs.items() for part in ("--input", f"{key}={uri}")]
        subprocess.run(command, check=True, capture_output=True)
        if name == "compile":  # which takes memory of its own
            continue
        stats = {key: STAGE.inputs[key].stats_of(Source.of(path)) for key, path in inputs.items() if key != "graph"}
        expected = STAGE.estimate(SampleParams(repeats=3), {"graph": graph.stats, **stats}, resources)
        made = Dataset.open(output)
        assert expected.memory_bytes == pytest.approx(made.manifest.measured.peak_memory_bytes, rel=0.2)
        assert expected.stats["edges"] == pytest.approx(made.stats["edges"], rel=0.5)
