"""Requests of trials and deployments, which set every parameter: whole graphs have the sums of GCN all the same."""

from pathlib import Path

from superworkflow.flows import load_superworkflow
from superworkflow.infra.config.request import Request, build_request
from superworkflow.infra.orchestration.parameters import flow_parameters, request_of
from superworkflow.sweeps.setup import Wishes, set_up
from superworkflow.sweeps.trial import trial_request


def _form(request: Request) -> str:
    return str(request.diagram.nodes["aggregate"].params.model_dump()["form"])


def test_full_graph_aggregates_in_the_form_that_gcn_reads(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    (tmp_path / "features.csv").write_text("node,x\na,1\nb,2\nc,3\n")
    (tmp_path / "labels.csv").write_text("node,label\na,1\nb,0\nc,1\n")
    chosen = load_superworkflow("full_graph")
    sources = {name: str(tmp_path / f"{name}.csv") for name in ("edges", "features", "labels")}
    request = build_request(chosen, sources=sources, store=str(tmp_path / "store"))
    assert _form(request) == "gcn"
    setup = set_up(request, Wishes())
    assert _form(trial_request(setup.request, {"train_full.hidden": 16}, [])) == "gcn"
    restored = build_request(chosen, sources=sources, store=str(tmp_path / "store"), parameters=setup.spec.params)
    assert _form(trial_request(restored, {"train_full.hidden": 16}, [])) == "gcn"
    assert _form(request_of(chosen, flow_parameters(request))) == "gcn"
