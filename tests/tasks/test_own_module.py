"""Modules of one's own: in training, inference and the registered model, on one process and on workers."""

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.engines.workers.group import Checkpoint
from superworkflow.infra.engines.workers.session import Role, local_group
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import infer, load_stage, partition, publish_predictions, shard
from superworkflow.tasks.infer.on_workers import infer as infer_together
from superworkflow.tasks.lib.formats.safetensors import read_tensors
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.publish.serving import load as serve
from superworkflow.tasks.train import STAGE
from superworkflow.tasks.train.on_workers import train
from superworkflow.tasks.train.params import TrainParams
from tests.tasks.gnn_graphs import adjacency, one_kind, prepared, two_kinds
from tests.tasks.index_helpers import run_stage
from tests.tasks.test_gnn_quality import accuracy, write_edges
from tests.tasks.test_train import KILLED

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_model.py"
SMALL = {"hidden": 16, "batch": 8, "epochs": 12, "fanouts": "3,all", "learning_rate": 0.02}
HEAD = "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n"
PLAIN = "    def __init__(self, in_channels, out_channels):\n        super().__init__()\n"
LINEAR = "        self.linear = nn.Linear(in_channels, out_channels)\n"
BLOCKS = (
    HEAD
    + """
    def __init__(self, in_channels, hidden_channels, out_channels, num_layers):
        super().__init__()
        widths = [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels]
        self.layers = nn.ModuleList(nn.Linear(2 * a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x, blocks):
        for layer, block in zip(self.layers, blocks):
            senders, receivers = block.edge_index
            total = torch.zeros(block.receivers, x.shape[1]).index_add(0, receivers, x[senders])
            drawn = torch.bincount(receivers, minlength=block.receivers).clamp(min=1)
            x = layer(torch.cat([x[: block.receivers], total / drawn[:, None]], 1)).tanh()
        return x
"""
)
TYPED = (
    HEAD
    + """
    def __init__(self, in_channels, hidden_channels, out_channels, metadata):
        super().__init__()
        self.own = nn.ModuleDict({name: nn.Linear(width, hidden_channels) for name, width in in_channels.items()})
        self.edges = nn.ModuleDict({name: nn.Linear(hidden_channels, hidden_channels) for _, name, _ in metadata[1]})
        self.last = nn.Linear(hidden_channels, out_channels)

    def forward(self, x_dict, edge_index_dict):
        rows = {name: self.own[name](x) for name, x in x_dict.items()}
        for _ in range(2):
            made = dict(rows)
            for (senders, name, receivers), (begin, end) in edge_index_dict.items():
                made[receivers] = made[receivers].index_add(0, end, self.edges[name](rows[senders])[begin])
            rows = {name: x.tanh() for name, x in made.items()}
        return {"paper": self.last(rows["paper"])}
"""
)


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Dataset:
    return one_kind(tmp_path_factory.mktemp("own") / "graph")


def model(folder: Path, text: str) -> str:
    (folder / "mine.py").write_text(text)
    return f"{folder / 'mine.py'}:Net"


def trained(graph: Dataset, folder: Path, **params) -> Dataset:
    return run_stage(STAGE, {**SMALL, **params}, {"graph": graph.uri}, folder, 1)


def inferred(graph: Dataset, network: Dataset, folder: Path, **params) -> Dataset:
    given = {"graph": graph.uri, "network": network.uri}
    return run_stage(infer.STAGE, params, given, folder, 1)


def test_cora_is_learned_by_the_example(shared_data, tmp_path):
    given = write_edges(shared_data / "planetoid", "cora", tmp_path / "cora")
    graph = run_stage(load_stage("heterograph"), {}, given, tmp_path / "graph")
    params = {"hidden": 64, "fanouts": "all,all", "batch": "all", "epochs": 60, "model": f"{EXAMPLE}:MeanNet"}
    assert accuracy(graph.location.local_path, params, tmp_path) >= 0.79


def test_the_text_of_the_file_is_in_the_digest_and_kept(tmp_path, graph):
    """Its folder is not, and the dataset needs the file no more. The registered model answers by its table."""
    mine = tmp_path / "elsewhere" / EXAMPLE.name
    mine.parent.mkdir()
    mine.write_text(EXAMPLE.read_text() + "\n")
    other = trained(graph, tmp_path / "other", model=f"{mine}:MeanNet")
    mine.write_text(EXAMPLE.read_text())
    network = trained(graph, tmp_path / "network", model=f"{mine}:MeanNet")
    mine.unlink()
    again = trained(graph, tmp_path / "again", model=f"{EXAMPLE}:MeanNet")
    assert [each.sha256 for each in again.manifest.files] == [each.sha256 for each in network.manifest.files]
    assert again.digest == network.digest != other.digest
    assert network.stats["validation_accuracy"] > 0.8
    found, log = inferred(graph, network, tmp_path / "infer"), io.StringIO()
    given = {name: each.uri for name, each in
             {"predictions": found, "network": network, "graph": graph}.items()}  # fmt: skip
    bundle = run_stage(publish_predictions.STAGE, {}, given, tmp_path / "bundle", log=log)
    assert "new nodes cannot be predicted: own_model.py:MeanNet" in log.getvalue()
    served = serve(bundle.location.local_path)
    answers = served.predict(pd.DataFrame({"node": ["n004", "new"], "neighbors": [None, ["n001"]]}), {})
    wanted = found.table("predictions.parquet").to_pylist()[4]
    assert (answers["predicted"][0], answers["error"][0]) == (wanted["predicted"], "")
    assert "own_model.py:MeanNet" in answers["error"][1]
    assert "superworkflow predict" in answers["error"][1]


@pytest.mark.parametrize("batch", [7, 90])
def test_edges_of_a_batch_are_those_of_the_whole_graph(tmp_path, graph, batch, monkeypatch):
    """With all neighbours, targets get the rows that the module makes of the whole graph."""
    network = trained(graph, tmp_path / "network", model=f"{EXAMPLE}:MeanNet", epochs=2, layers=3, fanouts="2,2,2")
    monkeypatch.setattr("superworkflow.tasks.infer.run.WHOLE", 0)
    found = inferred(graph, network, tmp_path / "infer", batch=batch).array("probabilities.npy")
    params = TrainParams(**{**SMALL, "model": f"{EXAMPLE}:MeanNet", "layers": 3, "fanouts": "2,2,2"})
    opened, _, shape, data = prepared(graph, params)
    whole = Network(shape, 0)
    whole.load_arrays(read_tensors(network.local("model.safetensors")))
    receivers, senders = adjacency(opened, "edge").nonzero(as_tuple=True)
    with torch.no_grad():
        rows = whole.own.module.eval()(
            torch.from_numpy(np.array(data.inputs.features["node"])), torch.stack([senders, receivers])
        )
    assert found == pytest.approx(torch.softmax(rows, 1).numpy(), abs=1e-5)


def test_a_typed_graph_is_given_by_set(tmp_path, monkeypatch):
    typed = two_kinds(tmp_path / "graph")
    network = trained(typed, tmp_path / "network", model=model(tmp_path, TYPED), label="paper.venue", epochs=30)
    assert network.json("history.json")[-1]["loss"] < 0.3
    whole = inferred(typed, network, tmp_path / "whole").array("probabilities.npy")
    monkeypatch.setattr("superworkflow.tasks.infer.run.WHOLE", 0)
    few = inferred(typed, network, tmp_path / "few", batch=3).array("probabilities.npy")
    assert few == pytest.approx(whole, abs=1e-5)


def test_workers_train_as_one_process_does(tmp_path, graph):
    inputs = {"graph": graph.uri}
    parts = run_stage(partition.STAGE, {"parts": 2}, inputs, tmp_path / "parts")
    shards = run_stage(shard.STAGE, {}, inputs | {"partition": parts.uri}, tmp_path / "shards")
    params = {**SMALL, "model": model(tmp_path, BLOCKS), "fanouts": "3,3", "epochs": 3}
    alone = trained(graph, tmp_path / "alone", **params)
    whole = TrainParams(**params).model_dump(mode="json")
    noisy = TrainParams(**{**params, "model": model(tmp_path, HEAD + PLAIN + LINEAR + NORMED)}).model_dump(mode="json")
    wanted = inferred(graph, alone, tmp_path / "infer")
    log = Progress("train", stream=io.StringIO())
    with local_group([Role("worker", 2)], Checkpoint(tmp_path / "kept"), log, tmp_path) as group:
        found = group.run(train, whole, graph.uri, shards.uri, "", str(tmp_path / "together"))[0]
        given = [{}, graph.uri, alone.uri, shards.uri, alone.uri, str(tmp_path / "inferred")]
        made = group.run(infer_together, *given)[0]
        with pytest.raises(UserError, match="running means of BatchNorm"):
            group.run(train, noisy, graph.uri, shards.uri, "", str(tmp_path / "none"))
    losses = alone.table("losses.parquet")["loss"].to_pylist()
    assert pq.read_table(tmp_path / "together" / "losses.parquet")["loss"].to_pylist() == pytest.approx(
        losses, abs=1e-4
    )
    assert found["facts"].keys() == alone.stats.keys()
    assert {each["path"]: each["sha256"] for each in made["files"]} == {
        each.path: each.sha256 for each in wanted.manifest.files
    }


NORMED = """        self.norm = nn.BatchNorm1d(out_channels)

    def forward(self, x, edge_index):
        return self.norm(self.linear(x))
"""
FORWARD = "\n    def forward(self, x, edge_index):\n"
REFUSED = {
    "another width": (HEAD + PLAIN + LINEAR + FORWARD + "        return x\n", "shape"),
    "too few rows": (HEAD + PLAIN + LINEAR + FORWARD + "        return self.linear(x)[:1]\n", "shape"),
    "no tensor": (HEAD + PLAIN + LINEAR + FORWARD + "        return 7\n", "no rows of the targets.*'int'"),
    "not finite": (HEAD + PLAIN + LINEAR + FORWARD + "        return self.linear(x) / 0\n", "not finite.*rows"),
    "an error": (HEAD + PLAIN + LINEAR + FORWARD + "        return self.linear(x.T)\n", "mine.py:11: RuntimeError"),
    "other arguments": (HEAD + PLAIN + LINEAR + "\n    def forward(self, a, b):\n        return a\n", "forms.*'a, b'"),
    "more arguments": (
        HEAD + PLAIN + LINEAR + "\n    def forward(self, x, edge_index, times, gain=1):\n        return x\n",
        "forward has arguments that are not given.*'times'",
    ),
    "no weights": (HEAD + PLAIN + FORWARD + "        return x\n", "no weights"),
    "constructor": (HEAD + PLAIN.replace("in_channels", "speed") + FORWARD, "not given.*'speed'"),
    "no module": ("class Net:\n    pass\n", "no subclass of torch.nn.Module"),
    "fails": ("import nowhere_to_be_found\n\n\nclass Net:\n    pass\n", "mine.py:1.*Install it"),
    "no class": ("class Nett:\n    pass\n", "no such class.*Did you mean Nett"),
    "no Python": ("class Net\n", "mine.py:1: not valid Python"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(tmp_path, graph, case):
    text, words = REFUSED[case]
    with pytest.raises(UserError, match=words):
        trained(
            graph, tmp_path / "made", model=model(tmp_path, text + ("        return x\n" * (case == "constructor")))
        )


def test_what_is_no_file_and_no_model(tmp_path, graph):
    with pytest.raises(UserError, match=r"none.py: no such file"):
        trained(graph, tmp_path / "made", model=f"{tmp_path}/none.py:Net")
    with pytest.raises(UserError, match=r"train.model: no such model \(got 'sagee'\). Give sage, .* or FILE.py:CLASS"):
        trained(graph, tmp_path / "made", model="sagee")
    assert TrainParams(**{**TrainParams(model=f"{EXAMPLE}:MeanNet").model_dump(), "model": "gat"}).code == ""


@pytest.mark.slow
def test_killed_training_with_dropout_resumes_to_the_same_bits(tmp_path, graph):
    params = {**SMALL, "model": f"{EXAMPLE}:MeanNet", "epochs": 4}
    whole = trained(graph, tmp_path / "whole", **params)
    command = [sys.executable, "-c", KILLED, graph.uri, str(tmp_path / "killed")]
    done = subprocess.run([*command, json.dumps(params), "9"], capture_output=True, text=True, timeout=500)
    assert done.returncode == -signal.SIGKILL, done.stderr
    log, given = io.StringIO(), {"graph": graph.uri}
    resumed = run_stage(STAGE, params, given, tmp_path / "killed", 1, log)
    assert "resuming at epoch 3, step " in log.getvalue()
    assert resumed.manifest.files == whole.manifest.files
