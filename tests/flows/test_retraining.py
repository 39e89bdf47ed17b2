"""Night after night on the graph that ships: a model is promoted, rejected, rolled back, or there is nothing to do."""

import gzip
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from superworkflow.infra.tracking.models import ModelRegistry
from tests.flows.nightly import Nights, nights

DATA = Path(__file__).parents[2] / "flows" / "data"
SETTINGS = ("walk.walk_length=40", "embed.dimensions=32", "evaluate.shuffles=3", "evaluate.projection_sample=0")
LABELS = ("--labels", str(DATA / "email-eu-core-department-labels.txt.gz"), "--set", "node2vec.link_prediction=false")
MODEL = "node2vec-nightly"


def _edges() -> list[list[str]]:
    with gzip.open(DATA / "email-eu-core.txt.gz", "rt") as rows:
        return [row.split() for row in rows if row.strip() and not row.startswith("#")]


EDGES = _edges()
NODES = sorted({node for row in EDGES for node in row})


def noisy(share: float) -> list[list[str]]:
    """The graph with a share of its edges replaced by random ones: Macro-F1 0.41 falls to 0.31 at 0.2, 0.20 at 0.5."""
    chance = random.Random(1)
    return [chance.sample(NODES, 2) if chance.random() < share else row for row in EDGES]


def shared(rows: list[list[str]]) -> set[frozenset[str]]:
    """The edges of a simple graph."""
    return {frozenset(row) for row in rows if row[0] != row[1]}


class Deployed:
    """A deployment whose edge list changes.

    Args:
        name: its name.
        folder: where all of it is.
        night: registers and runs it.
        more: arguments of `deploy`.
    """

    def __init__(self, name: str, folder: Path, night: Nights, *more: str):
        self.edges, self.uri = folder / f"{name}.txt", f"sqlite:///{folder}/mlflow.db"
        self.write(noisy(0.2))
        self.id = night.deploy(
            "node2vec", "--name", name, "--edges", str(self.edges), "--store", str(folder / "store"),
            "--set", *SETTINGS, *more,
        )  # fmt: skip
        self._night = night

    def write(self, rows: list[list[str]]) -> None:
        self.edges.write_text("".join(f"{u} {v}\n" for u, v in rows))

    def __call__(self, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """The next run, as it ended."""
        return self._night(self.id, parameters)

    def records(self) -> list[Run]:
        """Records of its runs in MLflow, newest first."""
        client = MlflowClient(self.uri)
        (experiment,) = client.search_experiments(filter_string="name = 'superworkflow'")
        which = f"tags.`superworkflow.deployment_id` = '{self.id}'"
        return list(client.search_runs([experiment.experiment_id], which, order_by=["attributes.start_time DESC"]))

    @property
    def registry(self) -> ModelRegistry:
        return ModelRegistry(self.uri)

    def current(self) -> int:
        """Version that is in use."""
        champion = self.registry.champion(MODEL)
        assert champion is not None
        return champion.version


Deploy = Callable[..., Deployed]


@pytest.fixture(scope="module")
def deploy(prefect_api: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deploy]:
    """Registers with a real server; what runs the deployments is a process of its own."""
    folder = tmp_path_factory.mktemp("nightly")
    tracking = {"MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db", "PREFECT_HOME": str(folder / "prefect")}
    with nights(prefect_api, tracking) as night:
        yield lambda name, *more: Deployed(name, folder, night, *more)


def test_nights(deploy: Deploy) -> None:
    deployed = deploy(
        "nightly", "--gate", "evaluate.macro_f1>=0.3", "--max-drift", "edges_added_share=0.5", *LABELS
    )  # fmt: skip
    first = deployed()
    assert first["state_name"] == "Completed", first["state"]
    assert "node2vec-nightly version 1: promoted: the first model under this name" in first["state"]["message"]
    (version,) = deployed.registry.versions(MODEL)
    assert (version.version, version.aliases) == (1, ("current",))
    assert set(version.data) == {"edges", "labels"}
    assert version.moves[0].who == "deployment node2vec/nightly"

    for times in ("1", "2"):
        unchanged = deployed()
        assert (unchanged["state_type"], unchanged["state_name"]) == ("COMPLETED", "Cached")
        assert set(unchanged["tags"]) == {"superworkflow", "unchanged"}
        newest, _ = deployed.records()  # of the two nights there is one record
        assert newest.data.tags["superworkflow.outcome"] == "unchanged"
        assert newest.data.tags["superworkflow.times"] == times

    deployed.write(noisy(0.5))
    bad = deployed()
    assert (bad["state_type"], bad["state_name"]) == ("FAILED", "Failed"), bad["state"]
    assert "rejected" in bad["tags"]
    assert bad["state"]["message"].count("rejected") == 1
    assert re.fullmatch(r"nightly \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", bad["name"])
    assert "(scored again on the same data)" in bad["state"]["message"]
    assert "gate evaluate.macro_f1>=0.3: evaluate.macro_f1@0.5 is" in bad["state"]["message"]
    added = shared(noisy(0.5)) - shared(noisy(0.2))
    limit = f"limit of drift edges_added_share=0.5: edges_added_share is {len(added) / len(shared(noisy(0.2))):.4g}"
    assert limit in bad["state"]["message"]
    assert deployed.current() == 1
    challenger = deployed.registry.challenger(MODEL)
    assert challenger is not None
    assert (challenger.version, challenger.decision["verdict"]) == (2, "rejected")
    record = deployed.records()[0].data
    assert record.tags["superworkflow.outcome"] == "rejected"
    figures = {name: record.metrics[f"promotion/{name}"] for name in ("quality", "champion_quality", "tolerance")}
    assert figures["quality"] < figures["champion_quality"] - figures["tolerance"]
    assert figures["champion_quality"] == record.metrics["quality/champion-evaluate.macro_f1_at_0.5"]
    assert figures["tolerance"] == record.metrics["quality/champion-evaluate.macro_f1_std_at_0.5"]
    drift = {name: value for name, value in record.metrics.items() if name.startswith("drift/")}
    assert drift["drift/edges_added"] == len(added)
    assert drift["drift/labels_unknown_share"] == 0
    assert 0 < drift["drift/neighbours_changed"] < 1
    assert 0 < drift["drift/cosine_distance"] < 1
    assert f"edges\\_added {len(added):,}" in record.tags["mlflow.note.content"]
    after = deployed()
    assert after["state_name"] == "Cached", "a rejected run has finished"
    assert "production is behind" in after["tags"]
    assert "production is behind: node2vec-nightly version 2 rejected: " in after["state"]["message"]
    assert after["state"]["message"].endswith("version 1 stays in use")
    assert deployed.records()[0].data.tags["behind"]

    deployed.write(EDGES)
    tried = deployed({"embed": {"dimensions": 32, "window": 5}})  # a person, from the form
    assert tried["state_name"] == "Completed", tried["state"]
    assert "its parameters are not the deployment's (embed.window)" in tried["state"]["message"]
    assert deployed.current() == 1
    good = deployed()
    assert good["state_name"] == "Completed", good["state"]
    assert "version 4: promoted" in good["state"]["message"]
    assert deployed.current() == 4

    deployed.write(noisy(0.2))  # as in the first night: all is cached, and the model is an old one
    old = deployed()
    assert old["state_name"] == "Completed", old["state"]
    assert "registered before, and version 4 is in use" in old["state"]["message"]
    assert deployed.current() == 4

    deployed.registry.roll_back(MODEL, None, "customers complain", who="bob")
    assert deployed.current() == 1
    deployed.write(EDGES[200:] + EDGES[:200])
    held = deployed()
    assert held["state_name"] == "Completed", held["state"]
    assert "the rollback by bob (customers complain) holds until a person promotes" in held["state"]["message"]
    assert deployed.current() == 1
    deployed.registry.promote(MODEL, None, "they have stopped", who="ann")
    assert deployed.current() == 5


@pytest.mark.slow
def test_nights_without_labels(deploy: Deploy) -> None:
    """Both are asked for hidden edges that neither has been trained on: nearly the same graph, nearly the same AUC."""
    deployed = deploy("links", "--no-promote")
    assert "waits as challenger, since promotion is left to people" in deployed()["state"]["message"]
    deployed.registry.promote("node2vec-links", None, "the first", who="ann")
    deployed.write(noisy(0.2)[50:])
    second = deployed()
    assert "(scored again on the same data)" in second["state"]["message"], second["state"]
    figures = deployed.records()[0].data.metrics
    assert figures["promotion/champion_quality"] == figures["quality/champion-evaluate.link_auc_at_hadamard"]
    assert figures["promotion/quality"] == figures["quality/challenger-evaluate.link_auc_at_hadamard"]
    assert abs(figures["promotion/quality"] - figures["promotion/champion_quality"]) < 0.1


@pytest.mark.slow
def test_warm_nights(deploy: Deploy) -> None:
    """Four short walks are too few for one epoch from random vectors; from the champion's, the epochs add up."""
    deployed = deploy("warm", "--warm-start", *LABELS, "walk.num_walks=4", "walk.walk_length=20")
    cold = deployed()
    assert cold["state_name"] == "Completed", cold["state"]
    assert deployed()["state_name"] == "Cached", "that there is a champion to start from now is no change"
    deployed.write(noisy(0.2)[::-1])
    warm = deployed()
    assert "promoted: evaluate.macro_f1@0.5" in warm["state"]["message"]
    champion, first = deployed.registry.versions("node2vec-warm")
    newest, *_, oldest = deployed.records()
    assert newest.data.tags["superworkflow.source.initial"].endswith(f"/embed/{first.datasets['embed']}")
    assert "superworkflow.source.initial" not in oldest.data.tags
    # The classifier's penalty fits weak vectors too: 0.20 cold and 0.26 warm.
    assert newest.data.metrics["promotion/quality"] > 1.2 * oldest.data.metrics["promotion/quality"]

    shutil.rmtree(deployed.edges.parent / "store" / "embed" / champion.datasets["embed"])
    deployed.write(noisy(0.2)[100:])
    lost = deployed()
    assert "rejected" in lost["tags"]
    assert "version 2 cannot be scored again: its dataset of embed is not in this store" in lost["state"]["message"]
    assert "superworkflow.source.initial" not in deployed.records()[0].data.tags
