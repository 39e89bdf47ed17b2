"""The work of stage `publish_factors`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.vertex.stage import whole_field


def run(job: StageRun[StageParams]) -> Output:
    """Write the tables; see `tasks.publish_factors`.

    Raises:
        UserError: the values are of another graph.
    """
    graph, values = job.inputs["graph"], job.inputs["values"]
    variables = int(graph.stats["variables"] or 0)
    label, belief = (whole_field(graph, values, name) for name in ("label", "belief"))
    if belief.shape[1:] != (graph.stats["states"],):
        raise UserError("the beliefs are of other states", where=values.uri, value=str(belief.shape),
                        remedy=f"Give those of {graph.uri}")  # fmt: skip
    node, belief = np.arange(variables, dtype=np.int32), belief[:variables]
    states = np.diff(graph.array("table_indptr.npy")[: variables + 1])
    rows, state = np.nonzero(np.arange(belief.shape[1]) < states[:, None])
    likeliest = belief[node, label[:variables]]
    for name, columns in (
        ("marginals.parquet", (rows.astype(np.int32), state.astype(np.int32), belief[rows, state])),
        ("assignment.parquet", (node, label[:variables], likeliest)),
    ):
        job.output.table(name, pa.table(columns, names=("node", "state", "probability")))
    value = log_value(graph, label)
    stats: dict[str, Stat] = {"variables": variables, "states": len(rows)}
    if np.isfinite(value):
        stats["log_value"] = value
    else:
        job.progress.log("warning: the likeliest states of the variables are impossible together")
    return Output(rows=variables, stats=stats)


def log_value(graph: Dataset, states: NDArray[np.int32]) -> float:
    """Logarithm of an assignment's product of all tables, -inf if one is 0.

    Args:
        graph: factor_graph dataset.
        states: int32 [vertices], of each variable.
    """
    variables = int(graph.stats["variables"] or 0)
    indptr, indices, table_indptr = (graph.array(f"{name}.npy") for name in ("indptr", "indices", "table_indptr"))
    sizes, entry = np.diff(table_indptr), np.zeros(len(indptr) - 1, np.int64)
    entry[:variables] = states[:variables]
    degrees = np.diff(indptr)
    for axis in range(int(degrees[variables:].max(initial=0))):
        factors = variables + np.flatnonzero(degrees[variables:] > axis)
        variable = indices[indptr[factors] + axis]
        entry[factors] = entry[factors] * sizes[variable] + states[variable]
    with np.errstate(divide="ignore"):
        logs = np.log(graph.array("table.npy")[table_indptr[:-1] + entry])
    return float(logs.sum()) + float(graph.stats["log_constant"] or 0.0)
