"""Mini-batches of GraphSAGE by DistDGL: two servers with a part of the graph each, and two trainers of one thread.

dist_dgl.py FOLDER OUT      a graph as gnn_graphs.py writes it; its parts, by METIS, are made in OUT if there are none
{"work": "batches", "params", "steps"} -> {"cpu_s", "servers_cpu_s", "wall_s", "edges"}      by trainer
{"work": "train", …} -> the same, "losses"
`params` are those of stage train, of which this reads layers, fanouts, hidden, batch and learning_rate; a trainer has
half of the batch. CPU seconds are those of the steps; of servers those of the same time.

A server and a trainer share memory under the name of the graph, as on a machine of their own: here each pair has a
/dev/shm of its own (unshare), and a trainer gets the number of its machine.
"""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

os.environ |= {
    "OMP_NUM_THREADS": "1", "DGLBACKEND": "pytorch", "DGL_DIST_MODE": "distributed", "DGL_NUM_SERVER": "1",
    "DGL_NUM_SAMPLER": "0", "DGL_NUM_CLIENT": "2", "DGL_GRAPH_FORMAT": "csc", "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "30152", "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo",
}  # fmt: skip

import dgl
import numpy as np
import torch
import torch.distributed as dist
from dgl.distributed import rpc_client
from dgl.nn import SAGEConv
from serving import Clock, serve
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

MACHINES = 2
NAME, PORT = "graph", 30150
torch.set_num_threads(1)
made: dict = {"loaders": {}, "networks": {}}


class Sage(torch.nn.Module):
    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(SAGEConv(a, b, "mean") for a, b in pairwise(widths))

    def forward(self, blocks: list, rows: torch.Tensor) -> torch.Tensor:
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            rows = layer(block, rows)
            rows = torch.relu(rows) if number < len(self.layers) - 1 else rows
        return rows


def divide(folder: Path, out: Path) -> None:
    """Write the parts, with features, labels, and who is trained on."""
    indptr, indices = (np.load(folder / f"{part}-0.npy") for part in ("indptr", "indices"))
    ends = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    graph = dgl.graph((torch.from_numpy(indices.astype(np.int64)), torch.from_numpy(ends)), num_nodes=len(indptr) - 1)
    (features,) = folder.glob("features-*.npy")
    graph.ndata["features"] = torch.from_numpy(np.load(features))
    graph.ndata["labels"] = torch.from_numpy(np.load(folder / "labels.npy"))
    graph.ndata["trained"] = torch.from_numpy(np.load(folder / "splits.npy") == 0)
    dgl.distributed.partition_graph(
        graph, NAME, MACHINES, str(out), part_method="metis", balance_ntypes=graph.ndata["trained"].long(),
        balance_edges=True,
    )  # fmt: skip
    (out / "hosts").write_text("".join(f"127.0.0.1 {PORT + number}\n" for number in range(MACHINES)))
    (out / "complete").touch()


def machine(number: int, out: Path) -> None:
    """One server and its trainer, which answers requests."""
    os.environ |= {"DGL_CONF_PATH": str(out / f"{NAME}.json"), "DGL_IP_CONFIG": str(out / "hosts")}
    hosts = os.environ["DGL_IP_CONFIG"]
    made["server"] = subprocess.Popen(
        [sys.executable, __file__, "server", hosts],
        env={**os.environ, "DGL_ROLE": "server", "DGL_SERVER_ID": str(number)}, stdout=2, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    rpc_client.get_local_machine_id = lambda book: number
    os.environ["RANK"] = str(number)

    def join() -> dict:
        dgl.distributed.initialize(hosts)
        dist.init_process_group("gloo")
        made["graph"] = graph = dgl.distributed.DistGraph(NAME, part_config=os.environ["DGL_CONF_PATH"])
        nodes = dgl.distributed.node_split(graph.ndata["trained"], graph.get_partition_book(), force_even=True)
        made["trained"] = nodes
        made["classes"] = int(graph.ndata["labels"][torch.arange(0, graph.num_nodes())].max()) + 1
        return {"trained": len(nodes)}

    serve(step, join)


def step(request: dict) -> dict:
    params, graph, trains = request["params"], made["graph"], request["work"] == "train"
    kind = json.dumps(params)
    if kind not in made["loaders"]:
        made["loaders"][kind] = batches(params)
    if trains and kind not in made["networks"]:
        torch.manual_seed(0)
        width = graph.ndata["features"].shape[1]
        widths = [width] + [params["hidden"]] * (params["layers"] - 1) + [made["classes"]]
        network = DistributedDataParallel(Sage(widths))
        made["networks"][kind] = network, torch.optim.Adam(network.parameters(), lr=params["learning_rate"])
    loader, edges, losses = made["loaders"][kind], 0, []
    dist.barrier()
    before = server_cpu()
    with Clock() as clock:
        for _ in range(request["steps"]):
            inputs, nodes, blocks = next(loader)
            rows = graph.ndata["features"][inputs]
            edges += sum(block.num_edges() for block in blocks)
            if trains:
                network, optimizer = made["networks"][kind]
                loss = cross_entropy(network(blocks, rows), graph.ndata["labels"][nodes])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(float(loss.detach()))
        wall, cpu = clock_now(clock)
    dist.barrier()
    return {"cpu_s": cpu, "servers_cpu_s": server_cpu() - before, "wall_s": wall, "edges": edges, "losses": losses}


def clock_now(clock: Clock) -> tuple[float, float]:
    clock.__exit__()
    return clock.wall_s, clock.cpu_s


def batches(params: dict):
    # DGL names fan-outs from the first layer on.
    sizes = [-1 if size == "all" else int(size) for size in params["fanouts"].split(",")]
    sampler = dgl.dataloading.NeighborSampler(sizes[::-1])
    loader = dgl.dataloading.DistNodeDataLoader(
        made["graph"], made["trained"], sampler, batch_size=params["batch"] // MACHINES, shuffle=True, drop_last=True
    )
    while True:
        yield from loader


def server_cpu() -> float:
    """CPU seconds of this trainer's server."""
    fields = Path(f"/proc/{made['server'].pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machines(folder: Path, out: Path) -> None:
    """Start all, and pass requests on to the trainers."""
    with ExitStack() as stack:

        def start() -> dict:
            if not (out / "complete").exists():
                out.mkdir(parents=True, exist_ok=True)
                divide(folder, out)
            inside = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
            made["trainers"] = [
                stack.enter_context(
                    subprocess.Popen(
                        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inside, "sh", sys.executable,
                         __file__, "machine", str(number), str(out)],
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                    )
                )
                for number in range(MACHINES)
            ]  # fmt: skip
            return {"trainers": [json.loads(each.stdout.readline()) for each in made["trainers"]]}

        serve(ask, start)
        for each in made["trainers"]:
            each.stdin.close()


def ask(request: dict) -> dict:
    for each in made["trainers"]:
        each.stdin.write(json.dumps(request) + "\n")
        each.stdin.flush()
    answers = [json.loads(each.stdout.readline()) for each in made["trainers"]]
    return {name: [each[name] for each in answers] for name in answers[0]}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["server", hosts]:
            dgl.distributed.initialize(hosts)
        case ["machine", number, out]:
            machine(int(number), Path(out))
        case [folder, out]:
            machines(Path(folder), Path(out))
