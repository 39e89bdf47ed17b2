"""Full-graph training on tensor pods and on graph pods, against the same training in one process."""

import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.config.prices import load_prices
from superworkflow.infra.config.profile import Placement
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.engines.workers import http_endpoint
from superworkflow.infra.launch.base import Event, StageCall
from superworkflow.infra.launch.kubernetes.launcher import KubernetesLauncher
from superworkflow.infra.launch.kubernetes.pod_group import MEMBER_OF, ROLE
from superworkflow.infra.launch.local.launcher import ProcessLauncher
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import load_stage
from tests.cluster.conftest import Cluster, Settings, node_address, open_to_pods
from tests.tasks.gnn_graphs import one_kind
from tests.tasks.index_helpers import run_stage

GIVEN = {"hidden": 16, "intervals": 8, "epochs": 250, "layers": 3}
FUNCTION = "superworkflow.tasks.lib.gnn.tensor_tasks:compute_call"
JOINED = "a tensor worker has joined"
SETTLED = 10
"""Epochs after which the size of a pool stays (`PoolSize`)."""
SAME = ("model.safetensors", "network.json", "splits.npy", "history.parquet")


def trained_here(folder: Path, given: dict[str, Any]) -> StageCall:
    """Training in one process of this machine, whose inputs pods can read."""
    inputs = {"graph": one_kind(folder / "graph").uri}
    if given.get("model") != "gat":
        inputs["sums"] = run_stage(load_stage("aggregate"), {"form": "gcn"}, inputs, folder / "sums").uri
    output, placed = f"{folder}/store/train_full/{'1' * 32}", Placement(resources=Resources(cpu=1))
    here = StageCall("train_full", "train_full", given, inputs, output, placed, {"flow-run": "tests"}, "torch")
    ProcessLauncher().launch(here, lambda event: None)
    open_to_pods(folder)
    return here


def test_tensor_pods_change_no_bit_though_one_is_deleted(
    cluster: Cluster, settings: Settings, shared_folder: Path
) -> None:
    """It is deleted once one has joined and the size of their pool has settled; another takes its place."""
    folder = shared_folder / "full"
    here = trained_here(folder, GIVEN | {"epochs": 500})
    tensor = {"count": 2, "most": 2, "cpu": 0.2, "memory": "192Mi"}
    resources = Resources.model_validate({"cpu": 0.5, "memory": "1Gi", "workers": {"tensor": tensor}})
    there = replace(here, output=f"{here.output[:-1]}2", placement=Placement(engine="workers", resources=resources))
    before: set[str] = set()
    after: set[str] = set()
    log: list[str] = []

    def on_event(event: Event) -> None:
        log.append(str(event.get("message")))
        if event["event"] != "progress" or event["done"] <= SETTLED or JOINED not in log or after:
            return
        pods = cluster.do(lambda api: api.items(api.pods, labelSelector=f"{MEMBER_OF},{ROLE}=tensor"))
        stay = {
            pod["metadata"]["name"]: pod["status"].get("phase")
            for pod in pods
            if "deletionTimestamp" not in pod["metadata"]
        }
        running = sorted(name for name, phase in stay.items() if phase == "Running")
        if before:
            after.update(name for name in running if name not in before)
        elif len(running) == len(stay) > 0:
            before.update(pod["metadata"]["name"] for pod in pods)
            cluster.do(lambda api: api.delete(f"{api.pods}/{running[0]}", gracePeriodSeconds="0"))

    command = [sys.executable, "-P", "-m", "superworkflow"]
    launched = KubernetesLauncher(settings(command=command)).launch(there, on_event)
    one, other = (Dataset.open(call.output) for call in (here, there))
    other.verify()
    assert all(one.local(name).read_bytes() == other.local(name).read_bytes() for name in SAME)
    assert before, log
    assert after, log
    assert int(str(other.stats["tensor.calls"])) > 100
    assert launched.figures["tensors_lost"] == 1
    assert launched.figures["tensor_peak_memory_bytes"] < 192 << 20
    (attempt,) = launched.attempts
    holdings = [each for each in attempt.holdings if each.role == "tensor"]
    assert len(holdings) >= launched.figures["tensors"] >= 2, attempt.holdings


@pytest.mark.parametrize("servers", [0, 2], ids=["one process", "graph servers"])
def test_calls_of_an_endpoint_are_in_the_bill(
    cluster: Cluster, settings: Settings, shared_folder: Path, servers: int
) -> None:
    """Functions on this machine execute calls of a stage's pod, or of its graph servers; they change no bit."""
    folder, token = shared_folder / f"endpoint{servers}", "t" * 32
    here = trained_here(folder, GIVEN)
    address = cluster.do(node_address)
    workers = {"graph": {"count": servers, "cpu": 0.3, "memory": "1Gi"}} if servers else None
    with http_endpoint.endpoint(FUNCTION, token.encode(), address) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = {"url": f"http://{address}:{server.server_port}", "most": 2}
        resources = Resources.model_validate(
            {"cpu": 0.5, "memory": "1Gi", "workers": workers, "endpoints": {"tensor": endpoint}}
        )
        placed = Placement(engine="workers" if servers else "in-process", resources=resources)
        there = replace(here, output=f"{here.output[:-1]}2", placement=placed)
        command = [sys.executable, "-P", "-m", "superworkflow"]
        given = settings(command=command, env={http_endpoint.TOKEN_VARIABLE: token})
        (attempt,) = KubernetesLauncher(given).launch(there, lambda event: None).attempts
        server.shutdown()
    one, other = (Dataset.open(call.output) for call in (here, there))
    assert all(one.local(name).read_bytes() == other.local(name).read_bytes() for name in SAME)
    calls, pods = (
        [each for each in attempt.holdings if (each.role == "tensor") == of_calls] for of_calls in (True, False)
    )
    executed, prices = int(str(other.stats["tensor.calls"])), load_prices()
    assert executed > 100
    assert len(pods) == 1 + servers
    assert sum(each.count * each.requests for each in calls) == pytest.approx(executed, rel=0.1)
    assert prices.functions is not None
    assert prices.price(calls) > executed * 0.9 * prices.functions.request
    assert prices.price(attempt.holdings) == pytest.approx(prices.price(pods) + prices.price(calls))


@pytest.mark.slow
@pytest.mark.parametrize("others", [{}, {"parameter": 1, "tensor": 2}], ids=["graph", "all roles"])
def test_graph_pods_change_no_bit_though_one_is_deleted(
    cluster: Cluster, settings: Settings, shared_folder: Path, others: dict[str, int]
) -> None:
    """One of each role is deleted in the course of training, which continues once others have taken their places."""
    folder = shared_folder / f"servers{len(others)}"
    here = trained_here(folder, GIVEN | {"model": "gat", "heads": 4, "patience": 0})
    servers = {"count": 2, "cpu": 0.3, "memory": "1Gi"}
    workers = {"graph": servers} | {role: servers | {"count": count} for role, count in others.items()}
    if others:
        workers["tensor"] |= {"most": 2, "cpu": 0.2, "memory": "192Mi"}
    resources = Resources.model_validate({"cpu": 0.2, "memory": "1Gi", "workers": workers})
    there = replace(here, output=f"{here.output[:-1]}2", placement=Placement(engine="workers", resources=resources))
    deleted: list[str] = []
    log: list[str] = []

    def on_event(event: Event) -> None:
        log.append(str(event.get("message")))
        if event["event"] != "progress" or deleted or event["done"] < 1:
            return
        for role in workers:
            selector = f"{MEMBER_OF},{ROLE}={role}"
            pods = cluster.do(lambda api, chosen=selector: api.items(api.pods, labelSelector=chosen))
            deleted.append(pods[-1]["metadata"]["name"])
            cluster.do(lambda api, name=deleted[-1]: api.delete(f"{api.pods}/{name}", gracePeriodSeconds="0"))

    command = [sys.executable, "-P", "-m", "superworkflow"]
    launched = KubernetesLauncher(settings(command=command)).launch(there, on_event)
    one, other = (Dataset.open(call.output) for call in (here, there))
    other.verify()
    assert len(deleted) == len(workers)
    assert all(one.local(name).read_bytes() == other.local(name).read_bytes() for name in SAME)
    assert other.stats["graph.servers"] == 2
    if others:
        assert int(str(other.stats["tensor.calls"])) > 100
    assert int(str(other.stats["graph.scatter_bytes"])) > 0
    (attempt,) = launched.attempts
    pods = Counter(each.role for each in attempt.holdings if each.role)
    assert pods.keys() == workers.keys()
    fixed = {role: group["count"] + 1 for role, group in workers.items() if "most" not in group}
    assert {role: pods[role] for role in fixed} == fixed, attempt.holdings
