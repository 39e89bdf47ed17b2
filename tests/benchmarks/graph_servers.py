"""`python -m tests.benchmarks.graph_servers FOLDER`: training on 1 to 3 graph servers, and 1 to 32 simulated ones.

GCN 100-128-128-20 and GAT on the graph of `pipelines`, each server with one thread, on this machine; prints a row for
each with seconds an epoch, CPU seconds, ghosts and bytes. Those of the virtual clock have simulated seconds, by rates
of this machine; for one and two servers next to the CPU seconds of a server. The graph stays in the folder.
"""

import io
import shutil
import sys
from pathlib import Path
from typing import Any

from superworkflow.infra.config.prices import load_prices
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import load_stage
from tests.benchmarks.pipelines import inputs_of

PARAMS: dict[str, Any] = {"layers": 3, "hidden": 128, "intervals": 12, "epochs": 10, "seed": 1}
LINKS, TENSOR_LINKS, ROLE_EPOCHS = (10, 1), (10, 1, 0.2), 40
HALVED = (8, 0, 0.2), (4, 0, 0.2), (4, 16, 10.0), (4, 16, 1.0), (4, 64, 0.2)
"""Simulated graph servers, tensor workers and the Gbit/s of each one's link; the first are all servers alone."""
FUNCTION_BYTES = 1769 << 20
VIRTUAL = PARAMS | {"clock": "virtual", "virtual_threads": 1, "virtual_rates": "measured", "epochs": 2}
SAME = ("model.safetensors", "history.parquet")


def trained(
    params: dict[str, Any], inputs: dict[str, str], output: Path, servers: int, parameters: int = 0, tensors: int = 0
) -> Dataset:  # fmt: skip
    """Training on graph servers, or in one process if there are none."""
    shutil.rmtree(output, ignore_errors=True)
    workers: dict[str, Any] = {"graph": {"count": servers, "cpu": 1, "memory": "4Gi"}} if servers else {}
    if parameters:
        workers["parameter"] = {"count": parameters, "cpu": 1, "memory": "1Gi"}
    if tensors:
        workers["tensor"] = {"count": tensors, "most": tensors, "cpu": 1, "memory": "192Mi"}
    given = Resources.model_validate({"cpu": 1, "memory": "4Gi", "workers": workers or None})
    progress, engine = Progress("train_full", stream=io.StringIO()), "workers" if servers else "in-process"
    return execute(load_stage("train_full"), params, inputs, str(output), given, progress, engine).dataset


def main(folder: Path) -> None:
    inputs = inputs_of(folder)
    measured(folder, inputs)
    compared(folder, inputs)
    of_roles(folder, inputs)
    simulated(folder, inputs)
    simulated_tensor_workers(folder, inputs)
    halved(folder, inputs)


def measured(folder: Path, inputs: dict[str, str]) -> None:
    show(
        [
            "network",
            "graph servers",
            "s an epoch",
            "CPU s an epoch",
            "CPU s before",
            "ghosts",
            "Scatter, MB",
            "gradients, MB an epoch",
        ]
    )
    show(["---"] + ["---:"] * 7)
    for model in ("gcn", "gat"):
        given = inputs if model == "gcn" else {"graph": inputs["graph"]}
        alone = trained(PARAMS | {"model": model}, given, folder / f"{model}-0", 0)
        for servers in (1, 2, 3):
            found = trained(PARAMS | {"model": model}, given, folder / f"{model}-{servers}", servers)
            assert all(found.local(name).read_bytes() == alone.local(name).read_bytes() for name in SAME)
            cpu_s, setup_s = (float(str(found.stats[f"graph.{name}"])) for name in ("cpu_s", "setup_s"))
            sent = [each_epoch(found, name) for name in ("ghosts", "scatter_bytes", "gradients_bytes")]
            each_s = f"{found.stats['epoch_s']:.3f}", f"{(cpu_s - setup_s) / PARAMS['epochs']:.3f}"
            show([model, str(servers), *each_s, f"{setup_s:.1f}", *sent])


def compared(folder: Path, inputs: dict[str, str]) -> None:
    """CPU seconds of a server next to simulated ones, whose link is so fast that nothing waits for it."""
    show(["network", "graph servers", "CPU s an epoch, of each", "simulated", "ratio"])
    show(["---"] + ["---:"] * 4)
    for model in ("gcn", "gat"):
        given = inputs if model == "gcn" else {"graph": inputs["graph"]}
        for servers in (1, 2):
            found = trained(PARAMS | {"model": model}, given, folder / "compared", servers)
            cpu_s, setup_s = (float(str(found.stats[f"graph.{name}"])) for name in ("cpu_s", "setup_s"))
            virtual = VIRTUAL | {"model": model, "virtual_servers": servers, "virtual_gbps": 1000.0}
            clock_s = float(str(trained(virtual, given, folder / "virtual", 0).stats["epoch_s"]))
            each_s = (cpu_s - setup_s) / PARAMS["epochs"] / servers
            show([model, str(servers), f"{each_s:.3f}", f"{clock_s:.3f}", f"{clock_s / each_s:.2f}"])


def of_roles(folder: Path, inputs: dict[str, str]) -> None:
    """GCN on two graph servers, by numbers of parameter servers and of tensor workers."""
    names = "graph", "parameter", "tensor", "s an epoch", "CPU s of servers", "of tensor workers", "calls, undone"
    show([*names, "Scatter", "gradients", "weights", "calls, MB an epoch"])
    show(["---:"] * (len(names) + 4))
    params = PARAMS | {"model": "gcn", "epochs": ROLE_EPOCHS}
    alone = trained(params, inputs, folder / "roles-0", 0)
    roles = (0, 0, True), (1, 0, True), (2, 0, True), (0, 2, True), (0, 2, False), (0, 4, True), (1, 2, True)
    for parameters, tensors, streaming in roles:
        found = trained(params | {"streaming": streaming}, inputs, folder / "roles", 2, parameters, tensors)
        assert all(found.local(name).read_bytes() == alone.local(name).read_bytes() for name in SAME)
        cpu_s, setup_s = (float(str(found.stats[f"graph.{name}"])) for name in ("cpu_s", "setup_s"))
        calls = [float(str(found.stats.get(f"tensor.{name}", 0))) for name in
                 ("seconds", "calls", "undone", "bytes_sent", "bytes_received")]  # fmt: skip
        sent = [each_epoch(found, f"{name}_bytes") for name in ("scatter", "gradients", "weights")]
        how = "" if streaming else " (no streaming)"
        show(["2", str(parameters), f"{tensors}{how}", f"{found.stats['epoch_s']:.3f}",
              f"{(cpu_s - setup_s) / ROLE_EPOCHS:.3f}", f"{calls[0] / ROLE_EPOCHS:.3f}",
              f"{calls[1]:.0f}, {calls[2]:.0f}", *sent, f"{sum(calls[3:]) / 1e6 / ROLE_EPOCHS:.2f}"])  # fmt: skip


def simulated(folder: Path, inputs: dict[str, str]) -> None:
    """Seconds of the virtual clock by number of servers of one thread, and by the Gbit/s of each one's link."""
    show(["network", "graph servers", "Scatter, MB an epoch", *(f"s an epoch, {gbps} Gbit/s" for gbps in LINKS)])
    show(["---"] + ["---:"] * (2 + len(LINKS)))
    for model in ("gcn", "gat"):
        given = inputs if model == "gcn" else {"graph": inputs["graph"]}
        for servers in (1, 2, 4, 8, 16, 32):
            virtual = VIRTUAL | {"intervals": 64, "model": model}
            links = [virtual | {"virtual_servers": servers, "virtual_gbps": gbps} for gbps in LINKS]
            found = [trained(each, given, folder / "virtual", 0) for each in links]
            show([model, str(servers), each_epoch(found[0], "scatter_bytes"),
                  *(f"{each.stats['epoch_s']:.3f}" for each in found)])  # fmt: skip


def simulated_tensor_workers(folder: Path, inputs: dict[str, str]) -> None:
    """Seconds of one simulated graph server, by number of tensor workers and by the Gbit/s of each one's link; with and
    without streaming."""
    show(["network", "tensor workers", "calls, MB an epoch", *(f"s an epoch, {gbps} Gbit/s" for gbps in TENSOR_LINKS)])
    show(["---"] + ["---:"] * (2 + len(TENSOR_LINKS)))
    for model in ("gcn", "gat"):
        given = inputs if model == "gcn" else {"graph": inputs["graph"]}
        for count in (0, 1, 4, 16):
            cells, sent = list[str](), 0.0
            for gbps in TENSOR_LINKS:
                params = VIRTUAL | {"model": model, "virtual_tensor_workers": count, "virtual_tensor_gbps": gbps}
                both = [
                    trained(params | {"streaming": streaming}, given, folder / "virtual", 0)
                    for streaming in ((True, False) if count else (True,))
                ]
                cells.append(", ".join(f"{each.stats['epoch_s']:.3f}" for each in both))
                sent = sum(float(str(both[0].stats.get(f"tensor.bytes_{way}", 0))) for way in ("sent", "received"))
            show([model, str(count), f"{sent / 1e6 / VIRTUAL['epochs']:.1f}", *cells])


def halved(folder: Path, inputs: dict[str, str]) -> None:
    """All simulated graph servers alone, and half of them with tensor workers, which are functions or pods.

    A server has 1 vCPU and 4 GiB, a tensor worker 1 vCPU: a pod with 192 MiB, paid for all the time, or a function with
    the 1769 MB to which AWS Lambda gives one vCPU, paid for while it computes. The value is 1 / (seconds x USD), that
    of all servers alone being 1.
    """
    prices, epochs = load_prices(), VIRTUAL["epochs"]
    assert prices.functions
    server_s, pod_s = (
        prices.rate(Resources.model_validate({"cpu": 1, "memory": memory})) / 3600 for memory in ("4Gi", "192Mi")
    )
    show(["network", "graph servers", "tensor workers", "Gbit/s of each", "s an epoch",
          "USD of a million epochs, by calls, by pods", "value, by calls, by pods"])  # fmt: skip
    show(["---"] + ["---:"] * 6)
    for model in ("gcn", "gat"):
        given = inputs if model == "gcn" else {"graph": inputs["graph"]}
        alone = 0.0
        for servers, workers, gbps in HALVED:
            sizes = {"virtual_servers": servers, "virtual_tensor_workers": workers, "virtual_tensor_gbps": gbps}
            found = trained(VIRTUAL | {"intervals": 64, "model": model} | sizes, given, folder / "virtual", 0)
            epoch_s, calls, computed_s = (
                float(str(found.stats.get(name, 0))) for name in ("epoch_s", "tensor.calls", "tensor.seconds")
            )
            functions = prices.functions.cost(FUNCTION_BYTES, int(calls), computed_s) if calls else 0.0
            costs = [servers * server_s * epoch_s + each for each in (functions / epochs, workers * pod_s * epoch_s)]
            values = [1 / (epoch_s * cost) for cost in costs]
            alone = alone or values[0]
            show([model, str(servers), str(workers), f"{gbps:g}" if workers else "", f"{epoch_s:.3f}",
                  ", ".join(f"{1e6 * cost:.2f}" for cost in costs),
                  ", ".join(f"{each / alone:.2f}" for each in values)])  # fmt: skip


def each_epoch(found: Dataset, name: str) -> str:
    """A count of graph servers; of bytes, in MB an epoch."""
    count = float(str(found.stats.get(f"graph.{name}", 0)))
    return f"{count / 1e6 / float(str(found.stats['epochs'])):.2f}" if name.endswith("bytes") else f"{count:.0f}"


def show(cells: list[str]) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
