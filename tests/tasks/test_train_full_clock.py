"""The virtual clock of full-graph training: rates of tasks, tensor workers, and what `plan` simulates."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import load_stage
from superworkflow.tasks.train_full import sparse_inputs, virtual_servers
from superworkflow.tasks.train_full.layer_tasks import AV, BACK, FORWARD, GA, VALIDATION, Task
from superworkflow.tasks.train_full.planned import PlannedWork, epoch_seconds
from superworkflow.tasks.train_full.task_rates import machine_rates
from superworkflow.tasks.train_full.task_seconds import BYTE, GCN, NOMINAL, GraphSizes, TaskSeconds
from superworkflow.tasks.train_full.timeline import faults, read_timeline
from superworkflow.tasks.train_full.virtual_clock import Work
from tests.tasks.gnn_graphs import one_kind
from tests.tasks.index_helpers import run_stage

GIVEN = {"hidden": 16, "heads": 4, "patience": 0, "intervals": 5, "epochs": 4, "layers": 3, "clock": "virtual"}
SAME = ("model.safetensors", "history.parquet", "timeline.parquet")
WORK = PlannedWork(GCN, 24_000, 800_000, ((128, 100), (128, 128), (20, 128)), 8, 12, 24_000, None, True, True, 4)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("one")
    given = {"graph": str(one_kind(folder / "graph").location.local_path)}
    sums = run_stage(load_stage("aggregate"), {"form": "gcn"}, given, folder / "sums")
    return given | {"sums": sums.uri}


def trained(inputs: dict[str, str], folder: Path, **params: Any) -> Dataset:
    given = inputs if params.get("model", "gcn") == "gcn" else {"graph": inputs["graph"]}
    return run_stage(load_stage("train_full"), GIVEN | params, given, folder)


def epoch_s(found: Dataset) -> float:
    return float(str(found.stats["epoch_s"]))


def test_seconds_of_work_grow_with_its_size_and_fall_with_rates():
    sizes = GraphSizes({0: 100, 1: 200}, {0: 1000, 1: 3000}, {0: 1000, 1: 3000}, {0: 100, 1: 300}, {})
    shapes, work = [(16, 50), (128, 16)], Work(lambda: None)
    slow, fast = (TaskSeconds(sizes, shapes, GCN, {name: rate * by for name, rate in NOMINAL.items()}) for by in (1, 4))
    for task in (Task(FORWARD, AV, 0), Task(BACK, AV, 1), Task(FORWARD, GA, 1)):
        small, large = (slow(work._replace(task=task, interval=each), 0) for each in (0, 1))
        assert 0 < small < large
        assert fast(work._replace(task=task), 0) == pytest.approx(small / 4)
    judges = work._replace(task=Task(VALIDATION, GA, 1))
    all_judged = TaskSeconds(sizes._replace(judged=sizes.arcs), shapes, GCN, NOMINAL)
    assert all_judged(judges, 0) > slow(judges, 0)
    assert slow(work, 1000) - slow(work, 0) == pytest.approx(500 / NOMINAL[BYTE])
    assert slow(work._replace(received=1000), 0) == slow(work, 1000)
    sparse = TaskSeconds(sizes._replace(entries={0: 10, 1: 10}), shapes, GCN, NOMINAL)
    assert sparse(work._replace(task=Task(FORWARD, AV, 0)), 0) < slow(work._replace(task=Task(FORWARD, AV, 0)), 0)


def test_rates_of_this_machine_are_all_that_seconds_read(inputs, tmp_path, monkeypatch):
    rates = machine_rates()
    assert rates.keys() == NOMINAL.keys()
    assert min(rates.values()) > 0
    measured = [trained(inputs, tmp_path / name, virtual_rates="measured", staleness=0) for name in "ab"]
    for name in SAME:
        assert measured[0].local(name).read_bytes() == measured[1].local(name).read_bytes()
    monkeypatch.setattr(virtual_servers, "_measured", lambda: {name: 2 * rate for name, rate in rates.items()})
    faster = trained(inputs, tmp_path / "c", virtual_rates="measured", staleness=0)
    assert epoch_s(faster) == pytest.approx(epoch_s(measured[0]) / 2)


@pytest.mark.parametrize(("model", "servers"), [("gcn", 1), ("gat", 1), ("gcn", 2)])
def test_virtual_tensor_workers_have_the_bits_of_one_process(inputs, tmp_path, model, servers):
    alone = trained(inputs, tmp_path / "alone", model=model)
    given = {"model": model, "virtual_servers": servers, "virtual_tensor_workers": 3}
    found = trained(inputs, tmp_path / "found", **given)
    assert all(found.local(name).read_bytes() == alone.local(name).read_bytes() for name in SAME[:2])
    rows = read_timeline(found.local("timeline.parquet"))
    assert not faults(rows, 0)
    assert len({row.thread for row in rows if row.thread < 0}) > 1
    assert {row.kind for row in rows if row.thread < 0} == {AV}
    assert found.stats["tensor.calls"]
    slow = trained(inputs, tmp_path / "slow", **given, virtual_tensor_gbps=1e-3)
    carried = 8 * max(float(str(slow.stats[f"tensor.bytes_{name}"])) for name in ("sent", "received")) / 1e6
    assert epoch_s(slow) > max(2 * epoch_s(found), carried / 3 / GIVEN["epochs"])


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_streams_hide_links_behind_products(inputs, tmp_path, monkeypatch, model):
    """The same bits, sooner: here links and products take as long as each other."""
    rates = {name: rate / 200 if " AV " in name else rate for name, rate in NOMINAL.items()}
    monkeypatch.setattr(virtual_servers, "_measured", lambda: rates)
    given = {"model": model, "virtual_rates": "measured", "virtual_tensor_workers": 1, "virtual_tensor_gbps": 0.2}
    found = [trained(inputs, tmp_path / str(streaming), **given, streaming=streaming) for streaming in (True, False)]
    assert all(found[0].local(name).read_bytes() == found[1].local(name).read_bytes() for name in SAME[:2])
    assert epoch_s(found[0]) < 0.9 * epoch_s(found[1])
    for each in found:
        (spans,) = [sorted((row.begin_s, row.end_s) for row in read_timeline(each.local("timeline.parquet"))
                           if row.thread < 0)]  # fmt: skip
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


@pytest.mark.parametrize(("servers", "updates"), [(1, "epoch"), (2, "interval")])
def test_virtual_parameter_servers_have_the_bits_of_one_process(inputs, tmp_path, servers, updates):
    alone = trained(inputs, tmp_path / "alone", updates=updates)
    given = {"updates": updates, "virtual_servers": servers, "virtual_parameter_servers": 2}
    found = trained(inputs, tmp_path / "found", **given)
    assert all(found.local(name).read_bytes() == alone.local(name).read_bytes() for name in SAME[:2])
    assert not faults(read_timeline(found.local("timeline.parquet")), 0)
    stats, epochs, weights = found.stats, GIVEN["epochs"], int(str(found.stats["parameters"]))
    assert stats["graph.servers"] == servers
    assert stats["graph.gradients_bytes"] == epochs * GIVEN["intervals"] * 2 * (4 * weights + 8)
    assert stats["graph.weights_bytes"] == epochs * servers * (4 * weights + 8 * GIVEN["intervals"])
    slow = trained(inputs, tmp_path / "slow", **given, virtual_gbps=1e-3)
    assert epoch_s(slow) > 8 * GIVEN["intervals"] / servers * 4 * weights / 1e6
    asynchronous = {**given, "staleness": 1, "epochs": 8}
    one, again = (trained(inputs, tmp_path / name, **asynchronous) for name in ("one", "again"))
    assert all(one.local(name).read_bytes() == again.local(name).read_bytes() for name in SAME)
    assert not faults(read_timeline(one.local("timeline.parquet")), 1)


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_virtual_calls_of_sparse_rows(inputs, tmp_path, monkeypatch, model):
    dense = trained(inputs, tmp_path / "dense", model=model, virtual_tensor_workers=3)
    monkeypatch.setattr(sparse_inputs, "SPARSE", 2.0)  # all are sparse enough
    alone, found = (
        trained(inputs, tmp_path / str(count), model=model, virtual_tensor_workers=count) for count in (0, 3)
    )
    assert all(found.local(name).read_bytes() == alone.local(name).read_bytes() for name in SAME[:2])
    assert found.stats["tensor.calls"]
    assert epoch_s(found) != epoch_s(dense)


def test_asynchrony_with_virtual_tensor_workers_repeats(inputs, tmp_path):
    given = {"staleness": 1, "virtual_tensor_workers": 2, "virtual_servers": 2, "epochs": 8}
    one, again = (trained(inputs, tmp_path / name, **given) for name in ("one", "again"))
    assert all(one.local(name).read_bytes() == again.local(name).read_bytes() for name in SAME)
    assert not faults(read_timeline(one.local("timeline.parquet")), 1)


def test_more_tensor_workers_are_faster_where_links_are_fast(inputs, tmp_path, monkeypatch):
    """Products take long here: `AV` is divided among workers."""
    rates = {name: rate / 1000 if " AV " in name else rate for name, rate in NOMINAL.items()}
    monkeypatch.setattr(virtual_servers, "_measured", lambda: rates)
    given = {"virtual_rates": "measured", "virtual_threads": 1, "virtual_tensor_gbps": 100.0}
    seconds = [
        epoch_s(trained(inputs, tmp_path / str(count), **given, virtual_tensor_workers=count)) for count in (0, 2, 5)
    ]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] > 1.5 * seconds[1] > 1.5 * seconds[2]


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_a_planned_epoch_is_as_long_as_a_virtual_one(inputs, tmp_path, model):
    """Loosely: arcs of the graph are not random."""
    found = trained(inputs, tmp_path, model=model, virtual_threads=2, epochs=2)
    graph = Dataset.open(inputs["graph"])
    nodes, arcs = int(str(graph.stats["nodes"])), int(str(graph.stats["edges"]))
    read = int(str(graph.stats["values.nodes.node"]))
    classes = int(str(found.stats["classes"]))
    work = PlannedWork(model, nodes, arcs, ((16, read), (16, 16), (classes, 16)), 4, 5, nodes // 4, None, True, True, 4)
    assert epoch_seconds(work, 1, 2, 0).wall == pytest.approx(epoch_s(found), rel=0.5)


def test_planned_epochs_follow_threads_servers_and_links():
    alone, two, four = (epoch_seconds(WORK, 1, threads, 0) for threads in (1, 2, 4))
    assert alone.wall > 1.5 * two.wall > 1.5 * four.wall
    assert alone.busy == pytest.approx(four.busy)
    local, ghosts = (epoch_seconds(WORK._replace(arcs=arcs), 3, 1, 0) for arcs in (2_000, 800_000))
    assert 1.5 * local.wall < alone.wall < ghosts.busy
    assert epoch_seconds(WORK, 1, 2, 4).busy > alone.busy
    asynchronous = epoch_seconds(WORK._replace(staleness=1), 1, 4, 0)
    assert asynchronous.wall < 1.3 * four.wall


def test_estimates_follow_roles():
    stage = load_stage("train_full")
    graph = {"nodes": 24_000, "edges": 800_000, "nodes.node": 24_000, "values.nodes.node": 100, "classes": 20}
    roles = {
        "alone": None,
        "graph": {"graph": {"count": 2, "cpu": 1, "memory": "1Gi"}},
        "tensor": {"tensor": {"count": 4, "most": 8, "cpu": 0.5, "memory": "192Mi"}},
    }
    found = {}
    for name, workers in roles.items():
        given = Resources.model_validate({"cpu": 2, "memory": "4Gi", "workers": workers})
        params = stage.params.model_validate({"layers": 3, "hidden": 128, "epochs": 100})
        found[name] = stage.estimate(params, {"graph": graph}, given)
        assert 0 <= found[name].parallel <= 1
    assert found["alone"].cpu_s < found["graph"].cpu_s < 4 * found["alone"].cpu_s
    assert found["graph"].runtime_s(2) < 0.75 * found["graph"].cpu_s
    assert found["tensor"].cpu_s > found["alone"].cpu_s
