"""The Python interface on real runs: results, comparison, errors."""

import doctest
import importlib
import io
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import superworkflow as sw
from superworkflow.infra.base.errors import Stopped, SuperworkflowError
from superworkflow.infra.process.interrupt import Interrupted
from tests.flows.command_line import SMALL, CommandLine
from tests.flows.deployments import ask

EXAMPLES = {
    "interface": ("run", "plan", "explain", "runs", "load", "compare", "models", "promote", "rollback"),
    "calls": ("deploy", "sweep", "predict"),
    "cells": ("stage", "define"),
}
"""Public functions by module, in the order in which their examples run."""
ALONE = """
import pickle, sys
import superworkflow as sw
run = sw.run("node2vec", **pickle.load(open(sys.argv[1], "rb")))
assert not {"mlflow", "prefect"} & sys.modules.keys()
print(run.id)
"""
PARAMS: dict[str, object] = dict(each.split("=") for each in SMALL) | {"node2vec.link_prediction": False}


@pytest.fixture
def frames(graph_files: tuple[Path, Path]) -> dict[str, pd.DataFrame]:
    """Edges and labels as frames."""
    edges, labels = map(pd.read_csv, graph_files)
    return {"edges": edges, "labels": labels}


def test_run(
    frames: dict[str, pd.DataFrame], graph_files: tuple[Path, Path], tmp_path: Path, prefect_api: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    store = str(tmp_path / "store")
    planned = sw.plan("node2vec", **frames, params=PARAMS, store=store)
    assert set(planned["state"]) == {"run"}

    run = sw.run("node2vec", **frames, params=PARAMS, store=store, name="first")
    assert list(run.stages.index) == list(planned.index)
    assert set(run.stages["state"]) == {"ran"}
    assert run.metrics["evaluate.macro_f1@0.5"] > 0.8
    assert run.cost.sum() == pytest.approx(run.stages["cost_usd"].sum())
    embeddings = run["embeddings"]
    assert "heterograph" in sw.plan("gnn", **frames, features=embeddings, store=store).index, "a source of the next run"
    nodes = list(embeddings.to_pandas()["node"])
    assert embeddings.to_numpy().shape == tuple(embeddings.to_torch().shape) == (len(nodes), 16)
    vectors = embeddings.to_numpy() / np.linalg.norm(embeddings.to_numpy(), axis=1, keepdims=True)
    similar = vectors @ vectors[nodes.index("v3")]
    similar[nodes.index("v3")] = -1
    found = run.neighbors("v3", k=2)
    assert list(found["node"]) == [nodes[place] for place in np.argsort(-similar)[:2]]
    assert run.figure("projection").size > (100, 100)
    assert "macro_f1" in run._repr_html_()
    assert " s</td>" in planned._repr_html_()
    assert "macro_f1" in repr(run)

    monkeypatch.setenv("SUPERWORKFLOW_STORE", store)
    _run_examples(sw=sw, pipeline="node2vec", data=frames, params=PARAMS)

    again = sw.run("node2vec", **frames, params=PARAMS, store=store, wait=False).result(120)
    assert set(again.stages["state"]) == {"cached"}
    assert list(sw.runs(store=store)["run"])[::2] == [again.id, run.id]
    side = sw.compare("first", again, store=store)
    assert side.loc[("metrics", "evaluate.macro_f1@0.5"), "ratio"] == 1
    assert side.loc[("seconds", "walk"), "second"] == 0
    assert "<td>0.0 s</td>" in side._repr_html_()
    why = sw.explain("node2vec", **frames, params=PARAMS | {"walk.p": 0.25}, store=store)
    assert next(iter(why.index[~why["cached"]])) == "walk"
    assert "walk.p: 1.0 → 0.25" in why.loc["walk", "why"]

    # Without a server that is named, a process that finds all cached imports neither Prefect nor MLflow.
    given = tmp_path / "given"
    given.write_bytes(pickle.dumps({**frames, "params": PARAMS, "store": store}))
    alone = subprocess.run(
        [sys.executable, "-c", ALONE, given], cwd=tmp_path, env=os.environ | {"PREFECT_API_URL": ""},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert alone.returncode == 0, alone.stderr
    assert set(sw.compare(again, alone.stdout.strip(), store=store).loc["seconds", "second"]) == {0.0}

    # The command line sees the same datasets: one code path, and numbers for what the frame says.
    line = CommandLine(
        Path(store), *graph_files, {"PREFECT_API_URL": prefect_api, "MLFLOW_TRACKING_URI": ""},
        [*SMALL, "node2vec.link_prediction=false"],
    )  # fmt: skip
    command = line("run", "--json").document
    found = command["metrics"]["evaluate.macro_f1@0.5"]  # threads train in another order each time
    assert found == pytest.approx(run.metrics["evaluate.macro_f1@0.5"], abs=0.01)

    listed = sw.models(store=store)
    assert listed.loc[0, ["name", "version", "run"]].to_list() == ["teams", 1, sw.runs().loc[3, "run"]]
    assert "current" in listed.loc[0, "aliases"]
    assert list(sw.models("teams", store=store)["why"]) == ["checked by hand"]

    with pytest.raises(sw.UserError, match=r"is no output of this run \(got 'embedding'\). Did you mean embeddings"):
        run["embedding"]
    with pytest.raises(sw.UserError, match="nobody"):
        run.neighbors("nobody")
    run.close()

    handle = sw.run("node2vec", **frames, params=PARAMS | {"walk.num_walks": 100_000}, store=store, wait=False)
    while handle.progress.loc["walk", "state"] != "runs":
        assert not handle.done
    assert handle.progress.loc["index", "state"] == "cached"
    handle.cancel()
    with pytest.raises(Stopped, match="cancelled"):
        handle.result(60)
    killed = sw.runs(store=store).loc[0]
    assert killed["status"] == "KILLED"
    assert sw.load(killed["run"], store=store).stages.loc["walk", "state"] == "failed"
    kept = sw.load(run.id, store=store)
    pd.testing.assert_frame_equal(kept.stages, run.stages, check_dtype=False)
    assert kept.metrics.equals(run.metrics)
    assert np.array_equal(kept["embeddings"].to_numpy(), embeddings.to_numpy())


def _run_examples(**names: object) -> None:
    """Run the examples of all public functions' docstrings, one after the other."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said = io.StringIO()
    for module, functions in EXAMPLES.items():
        home = importlib.import_module(f"superworkflow.{module}")
        for name in functions:
            (found,) = doctest.DocTestFinder(recurse=False).find(getattr(home, name), name, home, names)
            assert found.examples
            runner.run(found, out=said.write, clear_globs=False)
    assert not runner.summarize(verbose=False).failed, said.getvalue()


def test_options_and_deployments(
    frames: dict[str, pd.DataFrame], tmp_path: Path, prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    store = str(tmp_path / "store")
    given = {**frames, "params": PARAMS, "store": store}
    with pytest.raises(sw.UserError, match=r"unrecognized arguments: --trails 3. Did you mean --trials\?"):
        sw.sweep("node2vec", trails=3, **given)

    made = sw.deploy(
        "node2vec",
        f"nightly-{tmp_path.name}",
        cron="0 2 * * *",
        type="process",
        pause=True,
        export=[f"embeddings={tmp_path}/out.parquet"],
        **given,
    )
    assert made.created
    answer = ask("GET", f"{prefect_api}/deployments/{made.id}")
    assert answer.status_code == 200, answer.text
    kept = answer.json()
    assert kept["job_variables"]["env"]["SUPERWORKFLOW_EXPORTS"] == f"embeddings={tmp_path}/out.parquet"
    assert not sw.deploy("node2vec", f"nightly-{tmp_path.name}", type="process", **given).created


def test_a_failed_stage(tmp_path: Path, prefect_api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    labels = {"nobody": "x", "nowhere": "y"}
    with pytest.raises(SuperworkflowError) as failed:
        sw.run("node2vec", edges=[], store=str(tmp_path))
    assert "edges: is no source (got 'list')" in str(failed.value)
    with pytest.raises(SuperworkflowError, match=r"^labels:\d+: .*label"):  # not the file in the store
        sw.run("node2vec", edges=np.array([[0, 1], [1, 2], [2, 0], [2, 3]]), labels=labels, store=str(tmp_path),
               params=PARAMS, tracking=False)  # fmt: skip


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"edge": "e.csv"}, "node2vec: is no source (got 'edge'). Did you mean edges?"),
        ({}, "node2vec needs an edge list"),
        ({"edges": "e.csv", "params": {"walk": 3}}, "params: is no parameter (got 'walk'). Write stage.parameter"),
        ({"edges": "e.csv", "params": ["walk.p", 3]}, "params: are no parameters by name"),
        ({"edges": "e.csv", "params": {"walk.pp": 3}}, "walk.pp: unknown parameter"),
        ({"edges": "e.csv", "gates": "f1=3", "register": "m"}, "(got 'f1=3')"),
        ({"edges": "e.csv", "tolerance": 0.1}, "this run registers no model"),
        ({"edges": "e.csv", "register": "m", "tracking": False}, "models are kept in MLflow"),
    ],
)
def test_refused(given: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(sw.UserError) as refused:
        sw.run("node2vec", store=str(tmp_path), **given)
    assert message in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_what_is_no_superworkflow() -> None:
    with pytest.raises(sw.UserError, match=r"is no superworkflow .got 'Metric'.*begins with %%superworkflow"):
        sw.run(sw.Metric("a", "b"))
    nowhere = sw.Superworkflow(
        name="nowhere", help="", stages=(sw.Stage("lost", print, {}),), sources={}, diagram=lambda flow: None
    )  # type: ignore[arg-type]
    with pytest.raises(sw.UserError, match=r"nowhere: a stage is neither in a file nor installed.* .got 'lost'"):
        sw.run(nowhere)
    with pytest.raises(sw.UserError, match=r"absent\.py"):
        sw.plan(Path("absent.py"))


def test_nodes_may_be_numbers(graph_files: tuple[Path, Path], tmp_path: Path) -> None:
    """The command line takes `--set sssp.source=7`; a number was refused here."""
    given = {"edges": str(graph_files[0]), "store": str(tmp_path)}
    number, text = (sw.plan("sssp", params={"sssp.source": source}, **given) for source in (7, "7"))
    assert number.equals(text)


def test_a_notebook_shows_the_message_alone() -> None:
    error = sw.UserError("is no source", where="node2vec", value="edge", remedy="Did you mean edges?")
    assert error._render_traceback_() == ["UserError: node2vec: is no source (got 'edge'). Did you mean edges?"]
    interrupted = Interrupted(signal.SIGINT)
    interrupted.add_note("Complete stages are kept")
    assert interrupted._render_traceback_() == ["Interrupted: interrupted", "Complete stages are kept"]
