"""Graph servers of full-graph training: the weights of one process, the bytes of ghosts, and a server that is lost."""

import contextlib
import io
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.profile import Placement
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.engines.workers import calls, http_endpoint
from superworkflow.infra.engines.workers.group import Checkpoint
from superworkflow.infra.engines.workers.session import Role, local_group
from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.infra.launch.base import StageCall
from superworkflow.infra.launch.local.launcher import ProcessLauncher
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.tasks import load_stage
from superworkflow.tasks.lib.distributed.partition import BOOK_FILE, NodePartition, order_file
from superworkflow.tasks.lib.formats.safetensors import read_tensors
from superworkflow.tasks.lib.graph.heterograph import CsrRows, HeteroGraph
from superworkflow.tasks.train import checkpoint
from superworkflow.tasks.train_full import tensor_pool
from superworkflow.tasks.train_full.graph_servers import GhostRows, GraphServer
from superworkflow.tasks.train_full.on_workers import train
from superworkflow.tasks.train_full.parameter_servers import ParameterServer
from superworkflow.tasks.train_full.params import TrainFullParams
from superworkflow.tasks.train_full.timeline import faults, read_timeline
from superworkflow.tasks.train_full.vertex_order import Parts, VertexOrder, even_order
from superworkflow.tasks.train_full.whole_graph import WholeGraph
from tests.datasets import commit
from tests.infra.engines.test_workers import members_of
from tests.tasks.gnn_graphs import NODES, one_kind
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage

GIVEN = {"hidden": 16, "heads": 4, "patience": 0, "intervals": 5, "epochs": 4, "layers": 3}
SAME = ("model.safetensors", "history.parquet", "network.json", "splits.npy")


def directed(folder: Path, numbers: Sequence[int] = range(NODES)) -> Dataset:
    """A graph with arcs of one direction, of which most senders are few, and the same with other numbers."""
    rng, names = np.random.default_rng(6), [f"n{i:02}" for i in numbers]
    pairs = sorted({(names[int(u * u / NODES)], names[int(v)]) for u, v in rng.integers(0, NODES, (500, 2)) if u != v})
    given = {
        "features": rng.normal(size=(NODES, 7)).astype(np.float32), "label": [f"k{i % 3}" for i in range(NODES)],
        "split": [("train", "validation", "test")[i % 7 % 3] for i in range(NODES)],
    }  # fmt: skip
    return write_heterograph(folder, {"node": Nodes(names, given)}, {"edge": Edges("node", "node", pairs)})


@pytest.fixture(scope="module", params=["symmetric", "directed", "in parts"])
def inputs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp(request.param)
    graph = (one_kind if request.param == "symmetric" else directed)(folder / "graph")
    given = {"graph": graph.uri}
    made = {"sums": run_stage(load_stage("aggregate"), {"form": "gcn"}, given, folder / "sums")}
    if request.param == "in parts":
        made["parts"] = run_stage(load_stage("partition"), {"parts": 4}, given, folder / "parts")
    return given | {name: each.uri for name, each in made.items()}


@pytest.fixture(scope="module")
def symmetric(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("one")
    graph = one_kind(folder / "graph")
    given = {"graph": graph.uri}
    sums = run_stage(load_stage("aggregate"), {"form": "gcn"}, given, folder / "sums")
    return given | {"sums": sums.uri}


def trained(
    inputs: dict[str, str], folder: Path, count: int, cpu: int = 1, more: dict[str, Any] | None = None,
    endpoints: dict[str, Any] | None = None, **params: Any,
) -> tuple[Dataset, str]:  # fmt: skip
    """Train with graph servers, or in one process if their count is 0."""
    given = {name: uri for name, uri in inputs.items() if name != "sums" or params.get("model", "gcn") == "gcn"}
    workers = {"graph": {"count": count, "cpu": cpu, "memory": "1Gi"}} if count else {}
    resources = Resources.model_validate(
        {"cpu": cpu, "memory": "4Gi", "workers": workers | (more or {}) or None, "endpoints": endpoints}
    )
    progress = Progress("train_full", stream=(log := io.StringIO()))
    engine = "workers" if resources.workers else "in-process"
    made = execute(load_stage("train_full"), GIVEN | params, given, str(folder), resources, progress, engine)
    return made.dataset, log.getvalue()


def rows_of(dataset: Dataset) -> CsrRows:
    graph = HeteroGraph.open(dataset)
    return graph.rows(next(iter(graph.edge_sets)))


def order_in(inputs: dict[str, str], intervals: int) -> VertexOrder:
    """The order of a graph's vertices in this many intervals."""
    graph, parts = Dataset.open(inputs["graph"]), None
    if "parts" in inputs:
        divided = NodePartition.open(Dataset.open(inputs["parts"]), HeteroGraph.open(graph))
        parts = Parts(divided.orders["node"], divided.book[0])
    return even_order(rows_of(graph), intervals, parts)


def ghosts_of(rows: CsrRows, order: VertexOrder, servers: int, back: bool) -> int:
    """Pairs of a server and a vertex of another one whose row it reads, by brute force."""
    cuts = order.bounds[[(len(order.bounds) - 1) * each // servers for each in range(servers + 1)]]
    owner, found = np.empty(NODES, np.int64), set()
    owner[order.between(0, NODES)] = np.repeat(np.arange(servers), np.diff(cuts))
    for receiver in range(NODES):
        for sender in rows.indices[rows.indptr[receiver] : rows.indptr[receiver + 1]].tolist():
            reader, read = (sender, receiver) if back else (receiver, sender)
            if owner[reader] != owner[read]:
                found.add((int(owner[reader]), read))
    return len(found)


@pytest.mark.parametrize(
    ("model", "precision", "servers", "updates"),
    [("gcn", "float32", (1, 3), "epoch"), ("gat", "float32", (2,), "interval"), ("gat", "bfloat16", (3,), "epoch")],
)
def test_servers_change_no_bit_and_send_ghosts_alone(inputs, tmp_path, model, precision, servers, updates):
    """Rows of ghosts in each epoch: of both ways in training, and of the way forward in validation."""
    given = {"model": model, "precision": precision, "updates": updates}
    alone, _ = trained(inputs, tmp_path / "alone", 0, **given)
    rows, order = rows_of(Dataset.open(inputs["graph"])), order_in(inputs, 5)
    assert len(order.vertices)
    classes = int(str(alone.stats["classes"]))
    for count in servers:
        found, log = trained(inputs, tmp_path / str(count), count, cpu=1 + count % 2, **given)
        assert all(found.local(name).read_bytes() == alone.local(name).read_bytes() for name in SAME), log
        timeline = read_timeline(found.local("timeline.parquet"))
        assert not faults(timeline, 0)
        assert len(timeline) == len(read_timeline(alone.local("timeline.parquet")))
        ahead, behind = (ghosts_of(rows, order, count, back) for back in (False, True))
        assert found.stats["graph.ghosts"] == ahead
        size, widths = (2 if precision == "bfloat16" else 4), [16, 16, classes][model == "gcn" :]
        heads = [4, 4, 1] if model == "gat" else [0, 0]
        numbers = [size * width + 4 * each for width, each in zip(widths, heads, strict=True)]
        back = [size * width + 12 * each for width, each in zip(widths, heads, strict=True)]
        wanted = GIVEN["epochs"] * (2 * ahead * sum(numbers) + behind * sum(back))
        assert found.stats["graph.scatter_bytes"] == wanted
        weights = int(str(found.stats["parameters"])) * 4
        sent = 2 * (count - 1) * weights if updates == "epoch" else (3 - 1 + 5) * weights  # of 2 servers
        assert 0 <= found.stats["graph.gradients_bytes"] - GIVEN["epochs"] * sent < 8 * 5 * count * GIVEN["epochs"]
    assert not members_of(os.getpid())


@pytest.mark.parametrize(
    ("model", "servers", "parameters", "updates"),
    [
        ("gcn", 2, 1, "epoch"),
        ("gcn", 3, 2, "interval"),
        pytest.param("gat", 1, 2, "epoch", marks=pytest.mark.slow),
    ],
)
def test_parameter_servers_change_no_bit(symmetric, tmp_path, model, servers, parameters, updates):
    """Gradients of each interval go to one, which passes them on; weights come back once for each graph server.

    The profile may name the roles in any order.
    """
    given = {"model": model, "updates": updates}
    alone, _ = trained(symmetric, tmp_path / "alone", 0, **given)
    more = {"parameter": {"count": parameters, "cpu": 1, "memory": "1Gi"}}
    if model == "gat":  # all three roles
        more["tensor"] = {"count": 1, "most": 2, "cpu": 1, "memory": "192Mi"}
    if servers != 2:
        more["graph"] = {"count": servers, "cpu": 1, "memory": "1Gi"}
    found, log = trained(symmetric, tmp_path / "found", 0 if "graph" in more else servers, more=more, **given)
    assert all(found.local(name).read_bytes() == alone.local(name).read_bytes() for name in SAME), log
    assert not faults(rows := read_timeline(found.local("timeline.parquet")), 0)
    assert len(rows) == len(read_timeline(alone.local("timeline.parquet")))
    assert (found.stats["graph.servers"], found.stats["parameter.servers"]) == (servers, parameters)
    size, epochs = int(str(found.stats["parameters"])) * 4, GIVEN["epochs"]
    assert found.stats["graph.gradients_bytes"] == epochs * 5 * parameters * (size + 8)
    assert found.stats["graph.weights_bytes"] == epochs * servers * (size + 8 * 5)
    assert f"parameter server {parameters}: 0 vertices" in log


@pytest.mark.parametrize("staleness", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_asynchrony_with_all_roles(symmetric, tmp_path, staleness):
    more = {"parameter": {"count": 2, "cpu": 1, "memory": "1Gi"}}
    more["tensor"] = {"count": 2, "most": 2, "cpu": 1, "memory": "192Mi"}
    given = {"staleness": staleness, "epochs": 12, "dropout": 0.2}
    found, log = trained(symmetric, tmp_path, 2, more=more, **given)
    rows = read_timeline(found.local("timeline.parquet"))
    assert not faults(rows, staleness), log
    assert {row.epoch for row in rows} == set(range(1, 13))
    history = found.table("history.parquet").to_pydict()
    assert history["loss"][-1] < history["loss"][0]


def train_until_killed(worker: Worker, mark: str, saves: bool, *given: Any) -> dict[str, Any]:
    """Train; the last server is killed once, in the third epoch, before which the first one has saved, or not."""
    checkpoint.CHECKPOINT_SECONDS, tensor_pool._CHARGE_SECONDS = -1.0 if saves else 3600.0, 0.0
    put, update = GraphServer.put, ParameterServer.update

    def kills_parameters(self: ParameterServer) -> None:
        if self._updated == 2 and worker.rank == worker.size - 1 and not Path(mark).exists():
            Path(mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        update(self)

    def kills(self: GraphServer, ghosts: GhostRows) -> None:
        if ghosts.epoch == 2 and worker.rank == worker.size - 1 and not Path(mark).exists():
            Path(mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        put(self, ghosts)

    GraphServer.put, ParameterServer.update = kills, kills_parameters  # type: ignore[method-assign]
    try:
        return train(worker, *given)
    finally:
        GraphServer.put, ParameterServer.update = put, update  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "roles",
    [pytest.param([Role("graph", 3)], marks=pytest.mark.slow), [Role("graph", 1), Role("parameter", 2)]],
    ids=["graph", "parameter"],
)
def test_a_server_that_is_killed(symmetric, tmp_path, roles):
    """All begin again, from the checkpoint if there is one; the bits are those of one process."""
    alone, _ = trained(symmetric, tmp_path / "alone", 0, epochs=6)
    params = TrainFullParams.model_validate(GIVEN | {"epochs": 6}).model_dump(mode="json")
    inputs = {name: symmetric[name] for name in ("graph", "sums")}
    for saves in (False, True):
        progress, mark = Progress("train_full", stream=(log := io.StringIO())), tmp_path / f"killed {saves}"
        kept, output = Checkpoint(tmp_path / f"checkpoint {saves}"), tmp_path / f"output {saves}"
        with local_group(roles, kept, progress, tmp_path / f"logs {saves}") as group:
            group.run(train_until_killed, str(mark), saves, params, inputs, str(output))
        assert mark.exists()
        (lost,) = (line for line in log.getvalue().splitlines() if "was lost" in line)
        assert f"rank 2 of role {roles[-1].name}" in lost
        assert "all workers start again" in lost
        assert ("resuming at epoch 3" in log.getvalue()) == saves
        assert all((output / name).read_bytes() == alone.local(name).read_bytes() for name in SAME)
        epochs = {row.epoch for row in read_timeline(output / "timeline.parquet")}
        assert epochs == set(range(3 if saves else 1, 7))


def train_with_tensors(worker: Worker, mark: str, killed: str, *given: Any) -> dict[str, Any]:
    """Train once there are tensor workers; in the third epoch the last server, or one of its workers, is killed."""
    calls.LEAST_SECONDS = 60.0 if not killed else calls.LEAST_SECONDS
    running, put = calls.Calls.running, GraphServer.put

    @contextlib.contextmanager
    def when_available(self: calls.Calls) -> Iterator[calls.Calls]:
        with running(self):
            until = time.monotonic() + 60
            while not self.available and worker.size <= given[-1][0]:
                assert time.monotonic() < until
                time.sleep(0.02)
            yield self

    def kills(self: GraphServer, ghosts: GhostRows) -> None:
        if killed and ghosts.epoch == 2 and worker.rank == worker.size - 1 and not Path(mark).exists():
            Path(mark).touch()
            if killed == "graph":
                os.kill(os.getpid(), signal.SIGKILL)
            stage = int(Path(killed).read_text())
            next(each for each in members_of(stage) if each.ppid() == stage and not each.children()).kill()
        put(self, ghosts)

    calls.Calls.running, GraphServer.put = when_available, kills  # type: ignore[method-assign]
    try:
        return train(worker, *given)
    finally:
        calls.Calls.running, GraphServer.put = running, put  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("model", "servers", "tensors", "killed"),
    [
        ("gcn", 2, 3, ""),
        pytest.param("gat", 3, 3, "", marks=pytest.mark.slow),
        pytest.param("gcn", 2, 2, "tensor", marks=pytest.mark.slow),
        ("gcn", 2, 2, "graph"),
    ],
)
def test_tensor_workers_of_several_servers(symmetric, tmp_path, model, servers, tensors, killed):
    """Each server has workers of its own, as far as there are enough; none changes a bit."""
    given = {"model": model, "epochs": 6}
    alone, _ = trained(symmetric, tmp_path / "alone", 0, **given)
    params = TrainFullParams.model_validate(GIVEN | given).model_dump(mode="json")
    inputs = {name: symmetric[name] for name in ("graph", "sums") if model == "gcn" or name == "graph"}
    progress, mark = Progress("train_full", stream=(log := io.StringIO())), tmp_path / "killed"
    (tmp_path / "stage").write_text(str(os.getpid()))
    kept, output, roles = Checkpoint(tmp_path / "kept"), tmp_path / "output", [Role("graph", servers)]
    how = str(tmp_path / "stage") if killed == "tensor" else killed
    with local_group([*roles, Role("tensor", 1, most=tensors)], kept, progress, tmp_path / "logs") as group:
        results = group.run(
            train_with_tensors, str(mark), how, params, inputs, str(output), [tensors, 192 << 20]
        )  # fmt: skip
    assert mark.exists() == bool(killed), log.getvalue()
    lost = {"tensor": "a member of role tensor was lost", "graph": "rank 1 of role graph"}
    assert killed in lost or not killed
    assert all((text in log.getvalue()) == (role == killed) for role, text in lost.items()), log.getvalue()
    assert all((output / name).read_bytes() == alone.local(name).read_bytes() for name in SAME)
    rows = read_timeline(output / "timeline.parquet")
    assert not faults(rows, 0)
    pool = pq.read_table(output / "pool.parquet").to_pydict()
    assert pool["epoch"] == list(range(7 - len(pool["epoch"]), 7))
    stats = results[0]["stats"]
    workers = {row.thread for row in rows if row.thread < 0}
    assert stats["tensor.calls"] == sum(pool["calls"]) > 0
    assert workers
    if not killed and servers <= tensors:
        # On a busy machine a server may wait for its worker, and does some tasks itself.
        most = 6 * 5 * 3 * (2 if model == "gcn" else 3)
        assert most // 2 < stats["tensor.calls"] <= most, log.getvalue()
        assert {-(thread + 1) % servers for thread in workers} == set(range(servers))
    assert not members_of(os.getpid())


@pytest.mark.parametrize("parameters", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_graph_servers_share_an_endpoint(symmetric, tmp_path, monkeypatch, parameters):
    """Their calls change no bit, and are in the bill."""
    alone, _ = trained(symmetric, tmp_path / "alone", 0)
    monkeypatch.setenv(http_endpoint.TOKEN_VARIABLE, token := "t" * 32)
    server = {"count": 2, "cpu": 1, "memory": "1Gi"}
    workers = {"graph": server} | ({"parameter": server | {"count": parameters}} if parameters else {})
    with http_endpoint.endpoint("superworkflow.tasks.lib.gnn.tensor_tasks:compute_call", token.encode()) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        url = {"url": f"http://127.0.0.1:{served.server_port}", "most": 3}
        resources = Resources.model_validate({"cpu": 1, "workers": workers, "endpoints": {"tensor": url}})
        placed, output = Placement(engine="workers", resources=resources), f"{tmp_path}/store/train_full/{'1' * 32}"
        call = StageCall("train_full", "train_full", GIVEN, symmetric, output, placed, {"flow-run": "tests"}, "torch")
        (attempt,) = ProcessLauncher().launch(call, lambda event: None).attempts
        served.shutdown()
    found = Dataset.open(output)
    assert all(found.local(name).read_bytes() == alone.local(name).read_bytes() for name in SAME)
    assert {-row.thread for row in read_timeline(found.local("timeline.parquet")) if row.thread < 0}
    pool = found.table("pool.parquet").to_pydict()
    executed = int(str(found.stats["tensor.calls"]))
    assert executed == sum(pool["calls"]) > GIVEN["epochs"]
    assert max(pool["size"]) <= 3
    billed = [each for each in attempt.holdings if each.role == "tensor"]
    assert sum(each.count * each.requests for each in billed) == pytest.approx(executed, rel=0.2)
    assert sum(each.count * each.end_s for each in billed) == pytest.approx(found.stats["tensor.seconds"])


@pytest.mark.parametrize(("model", "staleness"), [("gcn", 0), ("gat", 2)])
def test_asynchrony_keeps_its_bounds(symmetric, tmp_path, model, staleness):
    given = {"model": model, "epochs": 25, "staleness": staleness, "dropout": 0.2, "switch_accuracy": 0.6}
    found, log = trained(symmetric, tmp_path, 3, cpu=2, **given)
    rows = read_timeline(found.local("timeline.parquet"))
    assert not faults(rows, staleness), log
    assert max(row.epoch - row.oldest for row in rows) >= 1
    assert {row.epoch for row in rows} == set(range(1, 26))
    assert len([row for row in rows if row.kind == "WU"]) == 25
    history = found.table("history.parquet").to_pydict()
    assert history["loss"][-1] < history["loss"][0]
    switch = int(np.flatnonzero(np.array(history["validation_accuracy"]) >= 0.6)[0]) + 1
    late = [row for row in rows if row.epoch > switch + staleness]
    assert late
    assert all(row.oldest == row.epoch for row in late)


def test_refusals(symmetric, tmp_path):
    graph = {"count": 2, "cpu": 1, "memory": "1Gi"}
    tensor = {"count": 1, "most": 2, "cpu": 1, "memory": "1Gi"}
    for number, more in enumerate([{"odd": graph}, {"parameter": graph | {"most": 2}}, {"tensor": graph}]):
        with pytest.raises(UserError, match=r"roles graph, parameter and tensor.*'graph, (odd|parameter|tensor)'"):
            trained(symmetric, tmp_path / f"a{number}", 2, more=more)
    with pytest.raises(UserError, match=r"roles graph, parameter and tensor.*'parameter'.*Name graph with a count"):
        trained(symmetric, tmp_path / "p", 0, more={"parameter": graph})
    with pytest.raises(UserError, match=r"a call of .* KiB does not fit into a tensor worker: at most 0 B"):
        trained(symmetric, tmp_path / "b", 2, more={"tensor": tensor | {"memory": "144Mi"}})
    for more, role in ({"tensor": tensor}, "tensor"), ({}, "odd"):
        endpoints = {role: {"url": "http://127.0.0.1:1", "most": 2}}
        with pytest.raises(UserError, match=rf"endpoint of the role tensor alone.*'{role}'"):
            trained(symmetric, tmp_path / f"e{role}", 2, more=more, endpoints=endpoints)
    with pytest.raises(UserError, match="virtual clock has simulated graph servers"):
        trained(symmetric, tmp_path / "c", 2, clock="virtual")
    with pytest.raises(UserError, match=r"more graph servers than intervals of vertices, 1.*2"):
        trained(symmetric, tmp_path / "d", 2, intervals=1)


@pytest.mark.parametrize("servers", [2, 4])
def test_parts_of_a_graph_are_the_graph(inputs, servers):
    """Places name the positions of the whole graph's arcs, and what leaves one server comes to the other."""
    rows, order = rows_of(Dataset.open(inputs["graph"])), order_in(inputs, 6)
    whole = WholeGraph.of_rows(rows, order)
    arcs = {(int(r), int(s)) for r in range(NODES) for s in rows.indices[rows.indptr[r] : rows.indptr[r + 1]]}
    for ends, turned in ((whole.arcs, False), (whole.back, True)):
        firsts = np.repeat(order.between(0, NODES), np.diff(ends.indptr)).tolist()
        pairs = zip(firsts, order.vertices_of(ends.indices).tolist(), strict=True)
        assert {pair[::-1] if turned else pair for pair in pairs} == arcs
    parts = [WholeGraph.of_rows(rows, order, servers, each) for each in range(servers)]
    assert [number for part in parts for number in part.own] == list(range(6))
    for way, ghosts in (("arcs", "ghosts"), ("back", "back_ghosts")):
        ends = []
        for part in parts:
            numbers = np.concatenate([np.arange(part.first, part.first + part.count), getattr(part, ghosts).numbers])
            ends.append(numbers[getattr(part, way).indices])
        assert (np.concatenate(ends) == getattr(whole, way).indices).all()
        for reader, part in enumerate(parts):
            lists = getattr(part, ghosts)
            for number, places in lists.coming.items():
                (owner,) = (each for each in parts if number in each.own)
                left = getattr(owner, ghosts).leaving[number][reader] + owner.first
                assert (left == lists.numbers[places.start - part.count : places.stop - part.count]).all()
    assert (np.concatenate([part.scales for part in parts]) == whole.scales).all()
    assert (sum(part.reads[list(part.own)].sum() for part in parts)) == whole.reads.sum()


@pytest.mark.parametrize(("model", "alike"), [("gcn", False), ("gat", True), ("gat", False)])
def test_a_graph_with_other_numbers_and_its_parts(tmp_path, model, alike):
    """Files are by its own numbers; weights are the same bits where vertices of a part stay in order, else nearly."""
    parts = tmp_path / "parts"
    made = {"graph": directed(tmp_path / "graph")}
    run_stage(load_stage("partition"), {"parts": 4}, {"graph": str(tmp_path / "graph")}, parts)
    divided = NodePartition.open(Dataset.open(parts), HeteroGraph.open(made["graph"]))
    order, book = divided.orders["node"], divided.book[0]
    numbers = np.empty(NODES, np.int64)
    numbers[order] = np.arange(NODES) if alike else np.random.default_rng(2).permutation(NODES)
    made["other"] = directed(tmp_path / "other", numbers.tolist())
    writer = DatasetWriter(tmp_path / "other parts")
    theirs = [np.sort(numbers[order[begin:end]]) for begin, end in itertools.pairwise(book.tolist())]
    writer.array(order_file(0), np.concatenate(theirs).astype(order.dtype))
    writer.array(BOOK_FILE, divided.book)
    commit(writer, "partition", {"name": "other"}, {}, NODES)
    found = []
    for name in ("", "other "):
        given = {"graph": str(tmp_path / (name.strip() or "graph")), "parts": str(tmp_path / f"{name}parts")}
        if model == "gcn":
            sums = tmp_path / f"{name}sums"
            run_stage(load_stage("aggregate"), {"form": "gcn"}, {"graph": given["graph"]}, sums)
            given["sums"] = str(sums)
        found.append(trained(given, tmp_path / f"{name}network", 0, model=model, dropout=0.0, intervals=4)[0])
    ours, others = found
    assert (others.array("splits.npy")[numbers] == ours.array("splits.npy")).all()
    weights = [read_tensors(each.local("model.safetensors")) for each in found]
    for name, values in weights[0].items():
        assert weights[1][name] == pytest.approx(values, rel=1e-3, abs=1e-5)
    same_bits = ours.local("model.safetensors").read_bytes() == others.local("model.safetensors").read_bytes()
    assert same_bits or not alike


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_parts_change_only_the_order_of_additions(inputs, tmp_path, model):
    """Dropout is by vertex. Parts of another graph are refused."""
    whole = {name: uri for name, uri in inputs.items() if name != "parts"}
    run_stage(load_stage("partition"), {"parts": 8}, {"graph": inputs["graph"]}, tmp_path / "parts")
    divided = whole | {"parts": str(tmp_path / "parts")}
    losses = []
    for number, given in enumerate((whole, divided)):
        found, _ = trained(given, tmp_path / str(number), 0, model=model, intervals="auto")
        losses.append(found.table("history.parquet").to_pydict()["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    one_kind(tmp_path / "other", seed=5)
    with pytest.raises(UserError, match="parts of another graph"):
        trained({"graph": str(tmp_path / "other"), "parts": divided["parts"]}, tmp_path / "refused", 0, model="gat")


@pytest.mark.parametrize(("model", "updates"), [("gcn", "epoch"), ("gat", "interval")])
def test_virtual_servers_have_the_bits_of_one_process(inputs, tmp_path, model, updates):
    """Synchronous; simulated seconds are those of the servers' threads and links."""
    given = {"model": model, "updates": updates}
    alone, _ = trained(inputs, tmp_path / "alone", 0, **given)
    seconds = []
    for gbps in (10.0, 1e-3):
        virtual = {"clock": "virtual", "virtual_servers": 3, "virtual_threads": 1, "virtual_gbps": gbps}
        found, _ = trained(inputs, tmp_path / str(gbps), 0, **given, **virtual)
        assert all(found.local(name).read_bytes() == alone.local(name).read_bytes() for name in SAME)
        rows = read_timeline(found.local("timeline.parquet"))
        assert not faults(rows, 0)
        assert {row.thread for row in rows} == {0, 1, 2}
        seconds.append(float(str(found.stats["epoch_s"])))
        sent = sum(int(str(found.stats[f"graph.{kind}_bytes"])) for kind in ("scatter", "gradients", "validation"))
        assert sent > 0
        # Rows leave at the same time, so that a third of all bytes takes as long as an epoch at least.
        assert seconds[-1] > 8 * sent / 3 / GIVEN["epochs"] / (gbps * 1e9)
    assert seconds[1] > 10 * seconds[0]


@pytest.mark.parametrize(("model", "staleness"), [("gcn", 0), ("gat", 2)])
def test_asynchrony_on_virtual_servers_repeats(symmetric, tmp_path, model, staleness):
    given = {"model": model, "epochs": 10, "staleness": staleness, "clock": "virtual", "virtual_servers": 2,
             "virtual_threads": 2, "virtual_gbps": 0.05}  # fmt: skip
    one, _ = trained(symmetric, tmp_path / "one", 0, **given)
    again, _ = trained(symmetric, tmp_path / "again", 0, **given)
    for name in ("model.safetensors", "history.parquet", "timeline.parquet"):
        assert one.local(name).read_bytes() == again.local(name).read_bytes()
    rows = read_timeline(one.local("timeline.parquet"))
    assert not faults(rows, staleness)
    assert max(row.epoch - row.oldest for row in rows) >= 1
