"""The registered model in a real MLflow store: loaded, queried and served over HTTP."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from superworkflow.flows.node2vec import SUPERWORKFLOW
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.infra.tracking import registry
from superworkflow.infra.tracking.registry import process_tracking_uri, register
from superworkflow.infra.tracking.tags import DIGEST_TAG
from superworkflow.tasks.publish import STAGE, serving
from tests.datasets import commit

(MODEL,) = SUPERWORKFLOW.registered
N, D = 500, 16
NODES = [f"n{i}" for i in range(N - 2)] + ["42", "zoë"]


def publish(folder: Path, seed: int = 0, metric: str = "cosine") -> Dataset:
    """Run the publish stage on random vectors."""
    vectors = np.random.default_rng(seed).normal(size=(N, D)).astype(np.float32)
    source = folder / f"embeddings-{seed}"
    writer = DatasetWriter(source)
    kind = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), D)
    writer.table("embeddings.parquet", pa.table({"node": NODES, "vector": kind}))
    commit(writer, "embed", {"name": source.name}, rows=N)
    output = str(folder / f"bundle-{seed}-{metric}")
    return execute(
        STAGE, {"metric": metric}, {"embeddings": str(source)}, output, Resources(), Progress("publish")
    ).dataset


@pytest.fixture(scope="module")
def tracking(tmp_path_factory):
    """URI, client and run of a new SQLite store."""
    folder = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    client = MlflowClient(uri)
    experiment = client.create_experiment("test", artifact_location=(folder / "artifacts").as_uri())
    with process_tracking_uri(uri):
        yield uri, client, client.create_run(experiment).info.run_id


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return publish(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def registered(tracking, bundle):
    uri, _, run_id = tracking
    return register(bundle, MODEL, name="embeddings", run_id=run_id, tracking_uri=uri)


@pytest.fixture(scope="module")
def model(registered):
    return mlflow.pyfunc.load_model(registered.uri)


def test_model_is_logged_under_its_run_and_registered(tracking, bundle, registered):
    _, client, run_id = tracking
    version = client.get_model_version("embeddings", "1")
    assert (int(version.version), version.run_id) == (registered.version, run_id) == (1, run_id)
    assert version.tags[DIGEST_TAG] == registered.digest == bundle.digest
    assert not registered.reused
    run = client.get_run(run_id)
    assert [output.model_id for output in run.outputs.model_outputs] == [registered.model_id]
    logged = client.get_logged_model(registered.model_id)
    assert logged.status == "READY"
    assert logged.params["dimensions"] == str(D)


def test_the_bundle_is_linked_and_nothing_is_pickled(tracking, bundle, registered):
    root = Path(tracking[1].get_logged_model(registered.model_id).artifact_location.removeprefix("file://"))
    names = {path.name for path in root.rglob("*") if path.is_file()}
    assert {
        "MLmodel",
        "served_model.py",
        "names.py",
        "embeddings.py",
        "requirements.txt",
        "vectors.npy",
        "bundle.json",
    } <= names
    assert not any(name.endswith((".pkl", ".pickle")) for name in names)
    linked = root / "artifacts" / "dataset" / "vectors.npy"
    assert linked.samefile(bundle.local("vectors.npy"))
    packages = {line.split("==")[0] for line in (root / "requirements.txt").read_text().split()}
    assert packages == {"mlflow", "numpy", "pandas"}


def test_same_bundle_is_not_registered_twice(tracking, bundle, registered, tmp_path):
    uri, client, run_id = tracking
    other = publish(tmp_path, seed=1)
    second = register(other, MODEL, name="embeddings", run_id=run_id, tracking_uri=uri)
    assert (second.version, second.reused) == (2, False)
    back = register(bundle, MODEL, name="embeddings", run_id=run_id, tracking_uri=uri)
    assert (back.version, back.reused, back.model_id) == (1, True, registered.model_id)
    assert client.get_registered_model("embeddings").aliases == {}, "registering puts nothing into use"
    assert len(client.search_model_versions("name = 'embeddings'")) == 2
    elsewhere = register(bundle, MODEL, name="another", run_id=run_id, tracking_uri=uri)
    assert (elsewhere.version, elsewhere.reused) == (1, False)


def test_the_process_has_the_tracking_uri_that_it_had(tracking, bundle, monkeypatch, tmp_path):
    """MLflow would leave its own in the environment, and the next run in this process take it for the user's."""
    uri, _, run_id = tracking
    for before in (f"sqlite:///{tmp_path}/other.db", None):
        if before:
            monkeypatch.setenv("MLFLOW_TRACKING_URI", before)
        else:
            monkeypatch.delenv("MLFLOW_TRACKING_URI")
        register(bundle, MODEL, name="embeddings", run_id=run_id, tracking_uri=uri)
        assert os.environ.get("MLFLOW_TRACKING_URI") == before
    with process_tracking_uri("sqlite:///outer.db"), process_tracking_uri(uri):
        pass
    assert "MLFLOW_TRACKING_URI" not in os.environ
    mlflow.set_tracking_uri(uri)  # as the other tests of this module have it


def test_model_whose_files_are_gone_is_logged_anew(tracking, tmp_path):
    uri, client, run_id = tracking
    made = publish(tmp_path, seed=2)
    first = register(made, MODEL, name="lost", run_id=run_id, tracking_uri=uri)
    root = Path(client.get_logged_model(first.model_id).artifact_location.removeprefix("file://"))
    (root / "MLmodel").unlink()
    assert register(made, MODEL, name="lost", run_id=run_id, tracking_uri=uri).version == 2
    assert len(mlflow.pyfunc.load_model("models:/lost/2").predict(pd.DataFrame({"node": ["n1"]}))) == 1


def test_copied_where_it_cannot_be_linked(tmp_path, monkeypatch):
    def refuse(source, target):
        raise OSError(18, "Invalid cross-device link")

    (tmp_path / "a").write_bytes(b"content")
    monkeypatch.setattr(registry.os, "link", refuse)
    registry._link(tmp_path / "a", tmp_path / "deep" / "b")
    assert (tmp_path / "deep" / "b").read_bytes() == b"content"


def test_vectors_of_nodes(model, bundle):
    answer = model.predict(pd.DataFrame({"node": ["zoë", "n7"]}))
    assert list(answer.columns) == ["node", "vector", "error"]
    assert list(answer["node"]) == ["zoë", "n7"]
    np.testing.assert_array_equal(np.array(answer["vector"].tolist()), bundle.array("vectors.npy")[[N - 1, 7]])


@pytest.mark.parametrize("metric", ["cosine", "dot"])
@pytest.mark.parametrize("block", [64, 1 << 16])
def test_neighbors_are_exact(tmp_path, monkeypatch, metric, block):
    monkeypatch.setattr(serving.embeddings, "BLOCK_ROWS", block)
    made = publish(tmp_path, metric=metric)
    served = serving.load(Path(made.uri))
    nodes = ["n3", "42", "zoë"]
    answer = served.predict(pd.DataFrame({"node": nodes}), {"task": "neighbors", "k": 7})
    vectors = made.array("vectors.npy").astype(np.float64)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if metric == "cosine" else vectors
    for node, neighbors, scores, _ in answer.itertuples(index=False):
        row = NODES.index(node)
        similarity = unit @ unit[row]
        if metric == "dot":
            similarity = vectors @ vectors[row]
        similarity[row] = -np.inf
        best = np.argsort(-similarity)[:7]
        assert neighbors == [NODES[i] for i in best]
        np.testing.assert_allclose(scores, similarity[best], rtol=1e-4)


def test_neighbors_of_a_vector_include_the_node_itself(model, bundle):
    vector = bundle.array("vectors.npy")[42].tolist()
    answer = model.predict(pd.DataFrame({"vector": [vector]}), params={"task": "neighbors", "k": 2})
    assert answer["neighbors"][0][0] == "n42"
    assert answer["scores"][0][0] == pytest.approx(1.0, abs=1e-5)


def test_more_neighbors_than_nodes(model):
    answer = model.predict(pd.DataFrame({"node": ["n0"]}), params={"task": "neighbors", "k": 10_000})
    assert sorted(answer["neighbors"][0]) == sorted(set(NODES) - {"n0"})


@pytest.mark.parametrize(
    ("table", "params", "message"),
    [
        ({"vector": [[1.0, 2.0]]}, {}, r"vector of question 0 must be 16 finite numbers, not \(2,\)"),
        ({"node": ["n1"], "vector": [[0.0] * D]}, {}, "question 0 needs either a `node` or a `vector`"),
        ({"node": ["n1"]}, {"task": "cluster"}, "unknown task 'cluster'"),
        ({"node": ["n1"]}, {"task": "neighbors", "k": 0}, "k is 0"),
    ],
)
def test_bad_requests_say_why(model, table, params, message):
    with pytest.raises(MlflowException, match=message):
        model.predict(pd.DataFrame(table), params=params)


@pytest.mark.parametrize(
    ("given", "nodes"),
    [
        (["n3", "42"], ["n3", "42"]),
        ([42, 43], ["42", "43"]),
        (42, ["42"]),
        ("n3", ["n3"]),
        (np.array(["n3", "zoë"]), ["n3", "zoë"]),
        (np.array([[42]]), ["42"]),
        (pd.Series([42, 42]), ["42", "42"]),
        (pd.Series(["n3"], name="node"), ["n3"]),
        (pd.Series(["n3"], name="person"), ["n3"]),
        (pd.DataFrame({"node": pd.Categorical(["n3", "42"])}), ["n3", "42"]),
        (pd.DataFrame({"node": [42.0, 43.0]}), ["42", "43"]),
        (pd.DataFrame({"node": [42], "extra": [1]}), ["42"]),
        ({"node": ["n3", 42]}, ["n3", "42"]),
        ({"node": "n3"}, ["n3"]),
        ([{"node": "n3"}, {"node": 42}], ["n3", "42"]),
    ],
)
def test_nodes_are_given_in_any_form(model, given, nodes):
    answer = model.predict(given, params={"task": "neighbors", "k": 1})
    assert answer["node"].tolist() == nodes
    assert [bool(error) for error in answer["error"]] == [node == "43" for node in nodes]
    assert [found is None for found in answer["neighbors"]] == [node == "43" for node in nodes]


def test_rows_without_an_answer_do_not_hinder_others(model, bundle):
    answer = model.predict(pd.DataFrame({"node": ["n1", "nobody", "n2"]}))
    assert answer["error"].tolist() == ["", "node 'nobody' is not among the 500 embedded nodes", ""]
    assert answer["vector"][1] is None
    for row in (1, 2):
        np.testing.assert_array_equal(answer["vector"][2 * (row - 1)], bundle.array("vectors.npy")[row])


@pytest.mark.parametrize("given", [[["n1", "n2", "n3"]], [["n1"], ["n1", "n2"]]])
def test_rows_of_too_many_values_are_refused(model, given):
    with pytest.raises(MlflowException, match="give node and vector in each"):
        model.predict(given)


def test_what_is_no_bundle_is_refused(tracking, tmp_path):
    publish(tmp_path)
    source = Dataset.open(tmp_path / "embeddings-0")
    with pytest.raises(UserError, match="not a bundle that can be registered"):
        register(source, MODEL, name="x", run_id=tracking[2], tracking_uri=tracking[0])


def test_unknown_run_is_an_error_for_people(tracking, bundle):
    uri = tracking[0]
    with pytest.raises(UserError, match="MLflow did not register the model"):
        register(bundle, MODEL, name="y", run_id="0" * 32, tracking_uri=uri)


@pytest.fixture
def server(tracking, registered, tmp_path):
    """Address of `mlflow models serve` on the registered model."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "models",
        "serve",
        "--model-uri",
        registered.uri,
        "--env-manager",
        "local",
    ]
    environment = {
        **os.environ, "MLFLOW_TRACKING_URI": tracking[0], "MLFLOW_DISABLE_TELEMETRY": "true",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    environment.pop("PYTHONPATH", None)
    with (tmp_path / "server.log").open("w+") as log:
        process = subprocess.Popen(
            [*command, "--env-manager", "local", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"],
            stdout=log, stderr=log, env=environment, cwd=tmp_path, start_new_session=True,
        )  # fmt: skip
        try:
            address = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + 120
            while not _answers(f"{address}/ping"):
                log.seek(0)
                assert process.poll() is None, log.read()
                assert time.monotonic() < deadline, log.read()
                time.sleep(0.2)
            yield address
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(15)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return response.status == 200
    except OSError:
        return False


def _post(address: str, request: dict) -> tuple[int, dict]:
    body = urllib.request.Request(
        f"{address}/invocations", json.dumps(request).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(body, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_served_over_http(server, bundle, model):
    """Served outside the checkout, so that the model depends on nothing of this project."""
    status, answer = _post(server, {"dataframe_records": [{"node": "n3"}, {"node": "zoë"}]})
    assert status == 200
    np.testing.assert_allclose(answer["predictions"][1]["vector"], bundle.array("vectors.npy")[-1], rtol=1e-6)
    request = {"dataframe_records": [{"node": "n3"}], "params": {"task": "neighbors", "k": 3}}
    status, answer = _post(server, request)
    expected = model.predict(pd.DataFrame({"node": ["n3"]}), params={"task": "neighbors", "k": 3})
    assert status == 200
    assert answer["predictions"][0]["neighbors"] == expected["neighbors"][0]
    vector = bundle.array("vectors.npy")[9].tolist()
    status, answer = _post(server, {"dataframe_records": [{"vector": vector}], "params": {"task": "neighbors", "k": 1}})
    assert (status, answer["predictions"][0]["neighbors"]) == (200, ["n9"])
    status, answer = _post(server, {"dataframe_records": [{"node": 42}]})
    assert (status, answer["predictions"][0]["node"]) == (200, "42")
    status, answer = _post(server, {"dataframe_records": [{"node": "nobody"}, {"node": "n3"}]})
    assert (status, answer["predictions"][0]["vector"]) == (200, None)
    assert answer["predictions"][0]["error"] == "node 'nobody' is not among the 500 embedded nodes"
    assert len(answer["predictions"][1]["vector"]) == D
    status, answer = _post(server, {"inputs": ["n3", "42"]})
    assert (status, [each["node"] for each in answer["predictions"]]) == (200, ["n3", "42"])
    status, answer = _post(server, {"dataframe_records": [{"node": "n3"}], "params": {"task": "cluster"}})
    assert status == 400
    assert "unknown task 'cluster'" in json.dumps(answer)
