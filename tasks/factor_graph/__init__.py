"""Stage `factor_graph`: a model of discrete variables in the UAI format becomes a graph of variables and factors.

Vertices are the variables, numbered as in the file, then factors of two or more variables, in the file's order; an
edge joins a factor and each variable of its scope. Factors of one variable and the evidence are part of the variable,
and a factor is part of another that has all its variables.

Files: `indptr.npy` int64 [vertices + 1], `indices.npy` int32 [arcs], ascending in each row; `factor.npy` bool
[vertices]; `table.npy` float64 and `table_indptr.npy` int64 [vertices + 1], of a variable the weight of each state, of
a factor that of each joint state of its neighbours, the last of which changes fastest. The stats have `variables`,
`factors`, `states` (of the variable that has most), `zeros` (entries of factors), `cycles` (independent ones,
apart from those by variables that can have one state alone) and `log_constant`, the logarithm of what was divided out
of the tables of single variables, whose largest weight is 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats

_PROCESS = Process(start_s=0.5, memory_bytes=110 << 20)
DISTANCE = 2
"""Distance of vertices of one colour: sampling writes the factors that a variable shares with others."""


def estimate(params: StageParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Sizes by the file's bytes, as of a model of pairs with few states."""
    given = int(inputs.get("factors", {}).get("bytes") or 0)
    return _PROCESS.estimate(
        memory_bytes=14 * given, cpu_s=3e-7 * given, output_bytes=4 * given,
        stats={
            "vertices": given // 20, "edges": given // 20, "variables": given // 40, "factors": given // 40,
            "distance": DISTANCE,
        },
    )  # fmt: skip


STAGE = Stage(
    name="factor_graph",
    version="2",
    params=StageParams,
    inputs={
        "factors": Input("a model in the UAI format, MARKOV or BAYES, optionally gzipped", file=True),
        "evidence": Input("states of observed variables, in the UAI format", file=True, optional=True),
    },
    run="superworkflow.tasks.factor_graph.run:run",
    estimate=estimate,
    help="graph of the variables and factors of a model",
)
