"""Parameters by node: two nodes of one stage with parameters of their own, from the command line to the deploy form."""

from dataclasses import replace
from pathlib import Path

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.request import Request, build_request
from superworkflow.infra.contract.diagram import Diagram
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.orchestration.parameters import flow_parameters, flow_schema, request_of
from superworkflow.infra.planning.explain import explain
from superworkflow.infra.planning.plan import plan
from superworkflow.infra.storage.source import Source
from superworkflow.sweeps.objective import judged_node, parse_objectives
from superworkflow.sweeps.setup import Wishes, set_up
from superworkflow.sweeps.trial import trial_request
from tests.second.conftest import Second
from tests.second.flows.second import SUPERWORKFLOW
from tests.second.stages import fit, measurements


def _request(graph: Path, *assignments: str, superworkflow: Superworkflow = SUPERWORKFLOW) -> Request:
    return build_request(
        superworkflow, sources={"graph": str(graph)}, assignments=assignments, store=str(graph.parent / "none")
    )


def test_each_node_has_its_own(graph: Path) -> None:
    request = _request(graph, "curved.degree=3", "fit.penalty=0.5")
    nodes = request.diagram.nodes
    assert nodes["fit"].params == fit.FitParams(penalty=0.5)
    assert nodes["curved"].params == fit.FitParams(degree=3)
    assert nodes["fit"].digest != nodes["curved"].digest
    assert {key: value for key, value in request.flat_params().items() if key.endswith(("degree", "penalty"))} == {
        "fit.degree": 1, "fit.penalty": 0.5, "curved.degree": 3, "curved.penalty": 0.01,
    }  # fmt: skip


def test_the_same_work_is_the_same_dataset(graph: Path) -> None:
    nodes = _request(graph, "fit.degree=2", "curved.degree=2").diagram.nodes
    assert nodes["fit"].digest == nodes["curved"].digest


def test_a_source_has_no_name_of_a_stage() -> None:
    with pytest.raises(
        UserError, match=r"superworkflow second: sources: a source has the name of a stage \(got 'fit'\)"
    ):
        replace(SUPERWORKFLOW, sources={"graph": "edges", "fit": "a table"})


def test_planned_by_its_own(graph: Path) -> None:
    stages = {stage.name: stage for stage in plan(_request(graph, "curved.degree=4", "curved.rounds=1000"))}
    assert list(stages) == ["measurements", "fit", "curved", "choose"]
    assert stages["curved"].cpu_s > stages["fit"].cpu_s
    assert stages["curved"].memory_bytes > stages["fit"].memory_bytes


def test_an_unknown_prefix_and_parameter(graph: Path) -> None:
    with pytest.raises(UserError, match=r"curvd.degree: unknown parameter. Did you mean curved.degree\?"):
        _request(graph, "curvd.degree=3")
    with pytest.raises(UserError, match=r"curved.degre: unknown parameter. Did you mean curved.degree\?"):
        _request(graph, "curved.degre=3")
    with pytest.raises(UserError, match=r"^curved.degree: .*less than or equal to 4 \(got 9\)"):
        _request(graph, "curved.degree=9")


def _twice(params: str) -> Superworkflow:
    def diagram(flow: Diagram, graph: Source) -> None:
        data = flow.stage(measurements.STAGE, graph=graph)
        flow.stage(fit.STAGE, name="again", params=params, data=data)

    return replace(SUPERWORKFLOW, diagram=diagram, outputs={}, outcomes=())


@pytest.mark.parametrize("params", ["curve", "measurements"])
def test_a_prefix_that_is_not_declared_for_the_stage(graph: Path, params: str) -> None:
    with pytest.raises(UserError, match=f"diagram node again: no prefix of parameters of stage fit .got '{params}'"):
        _request(graph, superworkflow=_twice(params))


@pytest.mark.parametrize("prefix", ["fit", "second", "graph", "not-a-word", ""])
def test_a_prefix_that_cannot_be(prefix: str) -> None:
    with pytest.raises(UserError, match="superworkflow second: prefixes: not a prefix that parameters can have"):
        replace(SUPERWORKFLOW, prefixes={prefix: fit.STAGE})


def test_form_of_a_deployment(graph: Path) -> None:
    schema = flow_schema(SUPERWORKFLOW).model_dump()
    first, second = (schema["properties"][name] for name in ("fit", "curved"))
    assert (first["title"], second["title"]) == ("fit", "curved")
    assert second["description"] == "Parameters of the stage fit at curved."
    assert first["$ref"] == second["$ref"] == "#/definitions/FitParams"
    assert schema["definitions"]["FitParams"]["title"] == "fit"
    request = _request(graph, "curved.degree=3")
    given = flow_parameters(request)
    assert (given["fit"]["degree"], given["curved"]["degree"]) == (1, 3)
    assert request_of(SUPERWORKFLOW, given).flat_params() == request.flat_params()


def test_space_and_groups_of_a_sweep(graph: Path) -> None:
    setup = set_up(_request(graph), Wishes(objectives=["choose.rmse"], group=("fit", 3)))
    assert list(setup.spec.space) == ["fit.degree", "fit.penalty", "curved.degree", "curved.penalty"]
    assert setup.spec.shared == ["fit.degree", "fit.penalty"]
    trial = trial_request(setup.request, {"fit.degree": 2, "curved.degree": 3}, [])
    assert [trial.diagram.nodes[name].params.identity()["degree"] for name in ("fit", "curved")] == [2, 3]
    with pytest.raises(UserError, match=r"--group: no such stage \(got 'curvd'\). Did you mean curved\?"):
        set_up(_request(graph), Wishes(objectives=["choose.rmse"], group=("curvd", 3)))
    alone = set_up(_request(graph), Wishes(objectives=["curved.rmse"]))
    assert list(alone.spec.space) == ["curved.degree", "curved.penalty"]


@pytest.mark.parametrize(
    ("objective", "judged"), [("curved.rmse", "curved"), ("choose.rmse", "fit"), ("measurements.rows", None)]
)
def test_a_trial_is_pruned_by_one_node(graph: Path, objective: str, judged: str | None) -> None:
    node = judged_node(_request(graph).diagram, parse_objectives([objective], None))
    assert (node.name if node else None) == judged


def test_explained_by_prefix(second: Second, graph: Path) -> None:
    penalty = "curved.penalty=0.0123"  # no other test has made this one
    second("run", "--set", penalty, "curved.degree=2", "--no-tracking")
    request = build_request(
        SUPERWORKFLOW, sources={"graph": str(graph)}, assignments=[penalty, "curved.degree=3"], store=str(second.store)
    )
    found = {each.name: each for each in explain(request)}
    assert found["fit"].cached
    assert [(each.name, each.now) for each in found["curved"].differences] == [("curved.degree", 3)]
