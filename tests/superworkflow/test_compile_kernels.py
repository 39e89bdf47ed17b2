"""Kernels that images bring along: all that any stage of any superworkflow calls in process, on one thread or two.

A kernel is compiled for the types of its arguments, and Numba asks its dispatcher to compile each new combination, be
it on disk or not. What compiling the image's kernels has not asked for would be compiled in every pod.
"""

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from superworkflow.flows import load_superworkflow
from superworkflow.images.compile_kernels import compile_for_typed_graphs, compile_for_walks
from superworkflow.infra.config.request import build_request
from superworkflow.infra.contract.diagram import Diagram, Node
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.store import Store
from superworkflow.tasks.walk.kernels import edge_filter_size, triangles
from tests.kernels.aarch64 import arm_code, compiled_kernels, dispatchers, of_another_processor

NODES = 150
TRAINING = {"train": {"epochs": 2, "hidden": 8}}
Wanted = list[str]


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wanted]:
    """Kernels that are asked for after those of an image were compiled: each with the types of its arguments.

    Those of earlier tests of this process are forgotten first: what they had compiled, no run would ask for.
    """
    for dispatcher in dispatchers():
        dispatcher._reset_overloads()
    for part in (compile_for_walks, compile_for_typed_graphs):
        part(tmp_path_factory.mktemp("kernels"))
    found: Wanted = []
    compiled: Callable[[Any, Any], Any] = Dispatcher.compile

    def compile_(dispatcher: Any, signature: Any) -> Any:
        found.append(f"{dispatcher.py_func.__module__}.{dispatcher.py_func.__qualname__}{signature}")
        return compiled(dispatcher, signature)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dispatcher, "compile", compile_)
        yield found


STOOD_IN_FOR = {
    "superworkflow.tasks.embed.kernel.train_walks": "floats instead of tiles and words",
    "superworkflow.tasks.embed.kernel._train": "floats instead of tiles and words",
    "superworkflow.tasks.lib.gnn.whole_graph.short_products.multiply_dropped": "floats instead of tiles and words",
    "superworkflow.tasks.lib.gnn.whole_graph.short_products.multiply_gradient": "floats instead of tiles and words",
    "superworkflow.tasks.lib.kernels.matrix_products.add_products": "floats instead of tiles and words",
    "superworkflow.tasks.lib.kernels.transposed_products.multiply_transposed": "products of torch",
    "superworkflow.tasks.records.kernels.lay_out": "checksums by tables",
    "superworkflow.tasks.records.kernels.put_sums": "checksums by tables",
    "superworkflow.tasks.lib.formats.crc32c.crc32c": "checksums by tables",
    "superworkflow.tasks.lib.formats.crc32c.masked_crc32c": "checksums by tables",
    "superworkflow.tasks.lib.formats.tfrecord.find_records": "checksums by tables",
}
"""Kernels that ask for instructions of x86, and what they do on a processor without these."""


@pytest.mark.slow
def test_all_kernels_compile_for_arm(wanted: Wanted) -> None:
    """Nothing is run: a kernel that asks for no instruction of x86 becomes an object file for 64-bit Arm."""
    kernels = dict(compiled_kernels())
    foreign = {name for name, library in kernels.items() if of_another_processor(library)}
    assert foreign <= set(STOOD_IN_FOR)
    for name in kernels.keys() - foreign:
        assert arm_code(kernels[name]), name
    assert len(kernels) > 100


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of two communities as edge lists, with features and labels, and as tables with a schema."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(3)
    pairs = sorted({(int(u), int(v)) for u, v in rng.integers(0, NODES, (2500, 2)) if u < v and (u - v) % 2 == 0})
    numbers = rng.normal(size=(NODES, 3)) + (np.arange(NODES) % 2)[:, None]
    (folder / "edges.csv").write_text("source,target\n" + "".join(f"v{u},v{v}\n" for u, v in pairs))
    (folder / "weighted.csv").write_text(
        "source,target,weight\n" + "".join(f"{u},{v},{1 + (u + v) % 7 / 2}\n" for u, v in pairs)
    )
    rows = "".join(f"v{i},{a:.3f},{b:.3f},{c:.3f}\n" for i, (a, b, c) in enumerate(numbers))
    (folder / "features.csv").write_text("node,a,b,c\n" + rows)
    labels = [("even", "odd")[i % 2] for i in range(NODES)]
    (folder / "labels.csv").write_text("node,label\n" + "".join(f"v{i},{each}\n" for i, each in enumerate(labels)))
    (typed := folder / "typed").mkdir()
    rows = "".join(f"v{i},{a:.3f},{i % 2},word{i % 5}\n" for i, (a, _, _) in enumerate(numbers))
    (typed / "nodes.csv").write_text("id,a,kind,word\n" + rows)
    (typed / "edges.csv").write_text((folder / "edges.csv").read_text())
    ends = 'source: "n" target: "n" metadata { filename: "edges.csv"'
    kinds = {"a": "FLOAT", "kind": "INT64", "word": "STRING"}
    features = " ".join(f'features {{ key: "{name}" value {{ dtype: DT_{kind} }} }}' for name, kind in kinds.items())
    (typed / "schema.pbtxt").write_text(
        f'node_sets {{ key: "n" value {{ metadata {{ filename: "nodes.csv" }} {features} }} }}\n'
        f'edge_sets {{ key: "to" value {{ {ends} }} }} }}\n'
        f'edge_sets {{ key: "from" value {{ {ends} extra {{ key: "edge_type" value: "reversed" }} }} }} }}\n'
    )
    (folder / "spec.pbtxt").write_text(
        'seed_op { op_name: "seed" node_set_name: "n" }\n'
        'sampling_ops { op_name: "one" input_op_names: "seed" edge_set_name: "to" sample_size: 3 '
        "strategy: RANDOM_UNIFORM }\n"
        'sampling_ops { op_name: "two" input_op_names: "one" edge_set_name: "from" sample_size: 3 '
        "strategy: RANDOM_UNIFORM }\n"
    )
    return folder


def _run(name: str, sources: Mapping[str, Path], store: Path, params: dict[str, Any], cpu: int) -> Diagram:
    """Make all datasets of a run in this process, and those of its drift from itself."""
    superworkflow = load_superworkflow(name)
    given = {key: str(path) for key, path in sources.items()}
    request = build_request(superworkflow, sources=given, parameters=params, store=str(store))
    _execute(request.diagram, request.store, cpu)
    if (drift := superworkflow.drift) is not None:
        nodes = request.diagram.nodes
        drift.diagram(
            request.diagram, nodes,
            {each: request.store.open(nodes[each].stage.name, nodes[each].digest) for each in drift.datasets},
        )  # fmt: skip
        _execute(request.diagram, request.store, cpu)
    return request.diagram


def _execute(diagram: Diagram, store: Store, cpu: int) -> None:
    for node in diagram.nodes.values():
        inputs = {
            name: store.location(each.stage.name, each.digest).uri if isinstance(each, Node)
            else each.location.uri if isinstance(each, Dataset) else each.uri
            for name, each in node.inputs.items()
        }  # fmt: skip
        output = store.location(node.stage.name, node.digest).uri
        params = node.params.model_dump(mode="json")
        execute(node.stage, params, inputs, output, Resources(cpu=cpu), Progress(node.name, stream=io.StringIO()))


@pytest.mark.parametrize("cpu", [1, 2])
def test_gnn_and_gnn_predict(wanted: Wanted, files: Path, tmp_path: Path, cpu: int) -> None:
    given = {name: files / f"{name}.csv" for name in ("edges", "features", "labels")}
    del wanted[:]
    trained = _run("gnn", given, tmp_path, TRAINING, cpu).nodes["train"]
    network = Store(str(tmp_path)).location("train", trained.digest).uri
    again = {"network": Path(network), "edges": given["edges"], "features": given["features"]}
    _run("gnn_predict", again, tmp_path, {}, cpu)
    assert "\n".join(wanted) == ""


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_full_graph(wanted: Wanted, files: Path, tmp_path: Path, model: str) -> None:
    given = {name: files / f"{name}.csv" for name in ("edges", "features", "labels")}
    del wanted[:]
    _run("full_graph", given, tmp_path, {"train_full": {"epochs": 2, "model": model, "precision": "bfloat16"}}, 2)
    assert "\n".join(wanted) == ""


def test_gnn_of_links(wanted: Wanted, files: Path, tmp_path: Path) -> None:
    del wanted[:]
    links = TRAINING | {"gnn": {"task": "link_prediction"}}
    _run("gnn", {"edges": files / "weighted.csv"}, tmp_path, links, 1)
    assert "\n".join(wanted) == ""


@pytest.mark.parametrize("large", [False, True])
def test_node2vec(wanted: Wanted, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    """Also with the tables of a graph on which walks keep no matrix of all pairs, and no link prediction."""
    del wanted[:]
    small: dict[str, Any] = {"embed": {"dimensions": 8}, "walk": {"num_walks": 2, "walk_length": 10}}
    if large:
        monkeypatch.setattr(edge_filter_size, "MATRIX_BYTES", 0)
        monkeypatch.setattr(triangles, "WORTH", 0.0)
        small = {"walk": small["walk"] | {"q": 2.0}, "embed": small["embed"], "node2vec": {"link_prediction": False}}
    _run("node2vec", {"edges": files / "edges.csv", "labels": files / "labels.csv"}, tmp_path, small, 1)
    assert "\n".join(wanted) == ""


def test_subgraphs(wanted: Wanted, files: Path, tmp_path: Path) -> None:
    del wanted[:]
    label = {"probe": {"label": "n.kind"}}
    _run("subgraphs", {"graph": files / "typed", "spec": files / "spec.pbtxt"}, tmp_path, label, 1)
    assert "\n".join(wanted) == ""
