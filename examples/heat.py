"""Heat that spreads from one node: a vertex program of one's own.

superworkflow run examples/heat.py --edges EDGES --set heat.source=NODE
"""

from superworkflow import Field, ProgramParams, VertexProgram


class HeatParams(ProgramParams):
    source: str = Field(default="", coerce_numbers_to_str=True, description="Node that is kept at temperature 1.")
    tolerance: float = Field(default=1e-9, ge=0, description="Ends when a step changes the temperatures by this.")


def update(scope, params):
    warm = 0.0
    for i in range(scope.degree):
        warm += scope.neighbour(i).heat
    heat = 1.0 if scope.vertex == params.source else 0.9 * warm / max(1, scope.degree)
    change = abs(heat - scope.heat)
    scope.heat = heat
    if change > 1e-12:
        scope.signal(scope, change)
        for i in range(scope.degree):
            scope.signal(scope.neighbour(i), change)
    return change


PROGRAM = VertexProgram(name="heat", fields={"heat": "float64"}, update=update, params=HeatParams, nodes=("source",))
