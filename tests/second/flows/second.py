"""A regression on a graph of patients, fitted twice with parameters of its own; the better one is kept."""

from superworkflow.infra.contract.diagram import Diagram
from superworkflow.infra.contract.metrics import Metric
from superworkflow.infra.contract.outcomes import Model, Picture
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.storage.source import Source
from tests.second.stages import choose, fit, measurements


def diagram(flow: Diagram, graph: Source) -> None:
    """Read, fit twice, choose."""
    data = flow.stage(measurements.STAGE, graph=graph)
    first = flow.stage(fit.STAGE, data=data)
    second = flow.stage(fit.STAGE, name="curved", params="curved", data=data)
    flow.stage(choose.STAGE, first=first, second=second)


SUPERWORKFLOW = Superworkflow(
    name="second",
    help="a regression fitted twice",
    stages=(measurements.STAGE, fit.STAGE, choose.STAGE),
    prefixes={"curved": fit.STAGE},
    sources={"graph": "a description of tables of patients and practices"},
    diagram=diagram,
    outputs={"weights": ("choose", "weights.npy")},
    outcomes=(
        Metric("choose", "rmse", "minimize", headline=True, uncertainty="rmse_std"),
        Metric("fit", "rmse", "minimize", uncertainty="rmse_std"),
        Metric("curved", "rmse", "minimize", uncertainty="rmse_std"),
        Picture("choose", "tests.second.outcomes:draw", "residuals"),
        Model("choose", code="tests.second.serving", card="tests.second.outcomes:card", name="progression"),
    ),
)
