"""Stage `publish_factors`: what a vertex program left of each variable of a factor graph, as tables.

Files: `marginals.parquet` with columns `node` (the variable's number), `state` and `probability`, a row for each state
of each variable, max-marginals of max-product; `assignment.parquet` with the likeliest state of each variable. The stat
`log_value` is the logarithm of the assignment's product of all tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats

_PROCESS = Process(start_s=0.4, memory_bytes=130 << 20)


def estimate(params: StageParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """The values are held twice, and the graph once."""
    graph, given = (int(inputs.get(name, {}).get("bytes") or 0) for name in ("graph", "values"))
    return _PROCESS.estimate(memory_bytes=3 * given + graph, cpu_s=5e-9 * (given + graph), output_bytes=given)


STAGE = Stage(
    name="publish_factors",
    params=StageParams,
    inputs={"graph": Input("factor_graph dataset"), "values": Input("dataset of a vertex program on that graph")},
    run="superworkflow.tasks.publish_factors.run:run",
    estimate=estimate,
    help="probabilities and likeliest states of a factor graph's variables, as tables",
)
