"""Runs of many graphs in one worker group, whose workers get them as JSON; programs are found by their names."""

from typing import Any

import numpy as np
import torch.distributed as dist

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.tasks.lib.distributed.exchange import Exchange
from superworkflow.tasks.lib.distributed.shared_memory import shared_buffers
from superworkflow.tasks.lib.vertex.cluster.engine import WorkerEngine
from superworkflow.tasks.lib.vertex.earlier import Earlier, compare_arcs
from superworkflow.tasks.lib.vertex.outcome import ProgramOutcome
from superworkflow.tasks.lib.vertex.run import Coloured


def as_json(graph: Coloured, program: str, params: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A run as an argument of a worker's function."""
    return {
        "indptr": graph.indptr.tolist(), "indices": graph.indices.tolist(),
        "weights": None if graph.weights is None else graph.weights.tolist(), "order": graph.order.tolist(),
        "bounds": graph.bounds.tolist(), "directed": graph.directed, "program": program, "params": params,
        "blocks": None if graph.blocks is None else graph.blocks.tolist(), **more,
    }  # fmt: skip


def earlier_in(run: dict[str, Any], graph: Coloured) -> Earlier:
    """The earlier run that a run starts from: its values by name, and the graph on which they were found."""
    given, program = run["earlier"], imported(run["program"])
    size, number = len(graph.indptr) - 1, np.array(given["number"], np.int32)
    indptr, indices = np.array(given["indptr"], np.int64), np.array(given["indices"], np.int32)
    fields, messages = (
        {name: np.frombuffer(bytes.fromhex(given[f"{mark}{name}"]), kind) for name, kind in kinds.items()}
        for mark, kinds in (("", program.fields), ("message ", program.messages))
    )
    kept = np.zeros(size, bool)
    kept[number[number >= 0]] = True
    made = Earlier(fields, messages, number, indptr, indices, None, np.zeros(len(indices), bool), graph, kept, ~kept,
                   ~kept)  # fmt: skip
    compare_arcs(made)
    return made


def described(outcome: ProgramOutcome) -> dict[str, Any]:
    """An outcome, bit for bit."""
    fields = {name: np.asarray(values).tobytes().hex() for name, values in outcome.fields.items()}
    fields |= {f"message {name}": np.asarray(values).tobytes().hex() for name, values in outcome.messages.items()}
    return {"fields": fields, "trace": outcome.trace, "globals": outcome.globals, "ended": outcome.ended}


def run_all(worker: Worker, runs: list[dict[str, Any]], shared: bool) -> list[dict[str, Any]]:
    """Outcomes of some runs on the first `size` ranks of the group of each; `shared`, through shared memory.

    A run that every rank refuses before anything travels has the error.
    """
    sizes = sorted({each["size"] for each in runs})
    groups = {size: dist.new_group(list(range(size)), backend="gloo") for size in sizes}
    found = []
    for each in runs:
        if worker.rank >= each["size"]:
            continue
        group = groups[each["size"]]
        exchange = Exchange(group, shared=shared_buffers(group) if shared else None)
        weights = None if each["weights"] is None else np.array(each["weights"], np.float32)
        graph = Coloured(
            np.array(each["indptr"], np.int64), np.array(each["indices"], np.int32), weights,
            np.array(each["order"], np.int32), np.array(each["bounds"], np.int64), each["directed"],
            blocks=None if each["blocks"] is None else np.array(each["blocks"], np.int64),
        )  # fmt: skip
        program = imported(each["program"])
        owners = np.array(each["owners"], np.int16) if "owners" in each else None
        more = {"owners": owners, "small": each.get("small", 0)}
        more["earlier"] = earlier_in(each, graph) if "earlier" in each else None
        try:
            engine = WorkerEngine(program, program.params(**each["params"]), graph, exchange, **more)
        except UserError as error:
            found.append({"refused": str(error)})
            continue
        found.append(described(engine.run()) | {"sent": exchange.sent})
    return found
