"""An edge list to vectors by our stages, as a run starts them: each a process, forked by one launcher's server.

python -m tests.benchmarks.own.node2vec_stages EDGES FOLDER THREADS WALK_JSON EMBED_JSON
-> {"index": seconds, "walk": …}: the wall time of each stage, start included
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from superworkflow.infra.config.profile import Placement
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.base import StageCall
from superworkflow.infra.launch.local import fork_client
from superworkflow.infra.launch.local.launcher import ProcessLauncher

STAGES = ("index", "walk", "prepare", "embed")


def run(edges: str, folder: Path, threads: int, walk: dict[str, Any], embed: dict[str, Any]) -> dict[str, float]:
    """Make a dataset of each stage in `folder`; nothing may be there yet."""
    launcher = ProcessLauncher()
    launcher.prepare(STAGES)
    graph, walks = {"graph": str(folder / "index")}, {"walks": str(folder / "walk")}
    given: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
        "index": ({"weighted": False}, {"edges": edges}),
        "walk": (walk, graph),
        "prepare": ({}, graph | walks),
        "embed": (embed, graph | walks | {"vocabulary": str(folder / "prepare")}),
    }
    placement = Placement(resources=Resources(cpu=threads))
    seconds = {}
    for name, (params, inputs) in given.items():
        begun = time.perf_counter()
        launcher.launch(StageCall(name, name, params, inputs, str(folder / name), placement), lambda event: None)
        seconds[name] = time.perf_counter() - begun
    server = fork_client.shared()
    if server is not None:
        server.close()  # waited for, so that its CPU time counts
    return seconds


if __name__ == "__main__":
    edges, folder, threads, walk, embed = sys.argv[1:]
    sys.stdout.write(json.dumps(run(edges, Path(folder), int(threads), json.loads(walk), json.loads(embed))) + "\n")
