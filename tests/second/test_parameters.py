"""Parameters by node: two nodes of one stage with parameters of their own, from the command line to the deploy form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from superworkflow.infra.diagram import Diagram, Superworkflow
from superworkflow.infra.errors import UserError
from superworkflow.infra.explaining import explain
from superworkflow.infra.orchestration.parameters import flow_parameters, flow_schema, request_of
from superworkflow.infra.planning import plan
from superworkflow.infra.request import Request, build_request
from superworkflow.infra.source import Source
from superworkflow.sweeps.objective import judged_node, parse_objectives
from superworkflow.sweeps.setup import Wishes, set_up
from superworkflow.sweeps.trial import trial_request
from tests.second.conftest import Second
from tests.second.flows.second import SUPERWORKFLOW
from tests.second.stages import fit, measurements


def _request(table: Path, *assignments: str, superworkflow: Superworkflow = SUPERWORKFLOW) -> Request:
    return build_request(
        superworkflow, sources={"table": str(table)}, assignments=assignments, store=str(table.parent / "none")
    )


def test_each_node_has_its_own(table: Path) -> None:
    request = _request(table, "curved.degree=3", "fit.penalty=0.5")
    nodes = request.diagram.nodes
    assert nodes["fit"].params == fit.FitParams(penalty=0.5)
    assert nodes["curved"].params == fit.FitParams(degree=3)
    assert nodes["fit"].digest != nodes["curved"].digest
    assert {key: value for key, value in request.flat_params().items() if key.endswith(("degree", "penalty"))} == {
        "fit.degree": 1, "fit.penalty": 0.5, "curved.degree": 3, "curved.penalty": 0.01,
    }  # fmt: skip


def test_the_same_work_is_the_same_dataset(table: Path) -> None:
    nodes = _request(table, "fit.degree=2", "curved.degree=2").diagram.nodes
    assert nodes["fit"].digest == nodes["curved"].digest


def test_planned_by_its_own(table: Path) -> None:
    stages = {stage.name: stage for stage in plan(_request(table, "curved.degree=4", "curved.rounds=1000"))}
    assert list(stages) == ["measurements", "fit", "curved", "choose"]
    assert stages["curved"].cpu_s > stages["fit"].cpu_s
    assert stages["curved"].memory_bytes > stages["fit"].memory_bytes


def test_an_unknown_prefix_and_parameter(table: Path) -> None:
    with pytest.raises(UserError, match=r"curvd.degree: unknown parameter. Did you mean curved.degree\?"):
        _request(table, "curvd.degree=3")
    with pytest.raises(UserError, match=r"curved.degre: unknown parameter. Did you mean curved.degree\?"):
        _request(table, "curved.degre=3")
    with pytest.raises(UserError, match=r"^curved.degree: .*less than or equal to 4 \(got 9\)"):
        _request(table, "curved.degree=9")


def _twice(params: str) -> Superworkflow:
    def diagram(flow: Diagram, table: Source) -> None:
        data = flow.stage(measurements.STAGE, table=table)
        flow.stage(fit.STAGE, name="again", params=params, data=data)

    return replace(SUPERWORKFLOW, diagram=diagram, outputs={}, outcomes=())


@pytest.mark.parametrize("params", ["curve", "measurements"])
def test_a_prefix_that_is_not_declared_for_the_stage(table: Path, params: str) -> None:
    with pytest.raises(UserError, match=f"diagram node again: no prefix of parameters of stage fit .got '{params}'"):
        _request(table, superworkflow=_twice(params))


@pytest.mark.parametrize("prefix", ["fit", "second", "table", "not-a-word", ""])
def test_a_prefix_that_cannot_be(prefix: str) -> None:
    with pytest.raises(UserError, match="superworkflow second: prefixes: not a prefix that parameters can have"):
        replace(SUPERWORKFLOW, prefixes={prefix: fit.STAGE})


def test_form_of_a_deployment(table: Path) -> None:
    schema = flow_schema(SUPERWORKFLOW).model_dump()
    first, second = (schema["properties"][name] for name in ("fit", "curved"))
    assert (first["title"], second["title"]) == ("fit", "curved")
    assert second["description"] == "Parameters of the stage fit at curved."
    assert first["$ref"] == second["$ref"] == "#/definitions/FitParams"
    assert schema["definitions"]["FitParams"]["title"] == "fit"
    request = _request(table, "curved.degree=3")
    given = flow_parameters(request)
    assert (given["fit"]["degree"], given["curved"]["degree"]) == (1, 3)
    assert request_of(SUPERWORKFLOW, given).flat_params() == request.flat_params()


def test_space_and_groups_of_a_sweep(table: Path) -> None:
    setup = set_up(_request(table), Wishes(objectives=["choose.rmse"], group=("fit", 3)))
    assert list(setup.spec.space) == ["fit.degree", "fit.penalty", "curved.degree", "curved.penalty"]
    assert setup.spec.shared == ["fit.degree", "fit.penalty"]
    trial = trial_request(setup.request, {"fit.degree": 2, "curved.degree": 3}, [])
    assert [trial.diagram.nodes[name].params.identity()["degree"] for name in ("fit", "curved")] == [2, 3]
    with pytest.raises(UserError, match=r"--group: no such stage \(got 'curvd'\). Did you mean curved\?"):
        set_up(_request(table), Wishes(objectives=["choose.rmse"], group=("curvd", 3)))
    alone = set_up(_request(table), Wishes(objectives=["curved.rmse"]))
    assert list(alone.spec.space) == ["curved.degree", "curved.penalty"]


@pytest.mark.parametrize(
    ("objective", "judged"), [("curved.rmse", "curved"), ("choose.rmse", "fit"), ("measurements.rows", None)]
)
def test_a_trial_is_pruned_by_one_node(table: Path, objective: str, judged: str | None) -> None:
    node = judged_node(_request(table).diagram, parse_objectives([objective], None))
    assert (node.name if node else None) == judged


def test_explained_by_prefix(second: Second, table: Path) -> None:
    second("run", "--set", "curved.degree=2", "--no-tracking")
    request = build_request(
        SUPERWORKFLOW, sources={"table": str(table)}, assignments=["curved.degree=3"], store=str(second.store)
    )
    found = {each.name: each for each in explain(request)}
    assert found["fit"].cached
    assert [(each.name, each.now) for each in found["curved"].differences] == [("curved.degree", 3)]
