"""Versions of a model, the champion and rollbacks, in a real MLflow registry."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from superworkflow.__main__ import main
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.tracking.decision import Decision
from superworkflow.infra.tracking.mlflow_tracker import open_client
from superworkflow.infra.tracking.models import HOLD_TAG, ModelRegistry, Version
from superworkflow.infra.tracking.tags import DATA_TAG, DATASETS_TAG, DIGEST_TAG

RUN = "r" * 32


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A new SQLite store."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('registry') / 'mlflow.db'}"
    open_client(uri)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MLFLOW_TRACKING_URI", uri)
        yield uri


@pytest.fixture
def client(uri: str) -> MlflowClient:
    """As MLflow's own users have it."""
    return MlflowClient(uri, registry_uri=uri)


@pytest.fixture
def registry(uri: str) -> ModelRegistry:
    """The registry under test."""
    return ModelRegistry(uri)


@pytest.fixture
def name(client: MlflowClient) -> str:
    """A new model of three versions."""
    name = f"model {len(client.search_registered_models())}"
    client.create_registered_model(name)
    for number in range(1, 4):
        tags = {DIGEST_TAG: str(number) * 32, DATASETS_TAG: json.dumps({"fit": "f" * 32, "bad": "../../etc"})}
        tags[DATA_TAG] = json.dumps({"graph": str(number) * 64})
        client.create_model_version(name, source="/nowhere", run_id=RUN, tags=tags)
    return name


def promoted(registry: ModelRegistry, name: str, number: int) -> Version:
    """Promote as a run does."""
    before, own = registry.champion(name), registry.version(name, number)
    assert registry.promote_instead(own, before.version if before else None, "deployment a/b", "better") == "moved"
    found = registry.champion(name)
    assert found is not None
    return found


def test_versions_tell_who_when_why_and_from_what(registry: ModelRegistry, name: str) -> None:
    assert registry.champion(name) is None
    registry.challenge(registry.version(name, 1))
    challenger = registry.challenger(name)
    assert challenger is not None
    assert challenger.version == 1
    found = promoted(registry, name, 1)
    assert found.aliases == ("current",), "a champion challenges nobody"
    assert (found.datasets, found.data) == ({"fit": "f" * 32}, {"graph": "1" * 64})
    promoted(registry, name, 2)
    (move,) = registry.version(name, 2).moves
    assert (move.kind, move.version, move.previous, move.who, move.why) == (
        "promoted",
        2,
        1,
        "deployment a/b",
        "better",
    )
    assert (move.run_id, move.data) == (RUN, {"graph": "2" * 64})
    assert [each.version for each in registry.versions(name)] == [3, 2, 1]


def test_a_rollback_holds_until_somebody_promotes(registry: ModelRegistry, name: str) -> None:
    promoted(registry, name, 1)
    promoted(registry, name, 2)
    move = registry.roll_back(name, None, "customers complain", who="ann")
    assert (move.kind, move.version, move.previous) == ("rolled back", 1, 2)
    hold = registry.hold(name)
    assert hold is not None
    assert (hold.who, hold.why) == ("ann", "customers complain")
    assert registry.promote_instead(registry.version(name, 3), 1, "deployment a/b", "better") == "held"
    champion = registry.champion(name)
    assert champion is not None
    assert champion.version == 1
    with pytest.raises(UserError, match="nothing before it to return to"):
        registry.roll_back(name, None, "again")
    registry.promote(name, 3, "looked at it", who="bob")
    assert registry.hold(name) is None
    again = registry.champion(name)
    assert again is not None
    assert again.version == 3
    assert registry.roll_back(name, None, "no").version == 1
    registry.promote(name, 2, "after all")
    registry.promote(name, 2, "once more")
    assert registry.roll_back(name, None, "no").version == 1


def test_a_rollback_in_the_middle_of_a_promotion_holds(
    registry: ModelRegistry, uri: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person rolls back after a run has looked for a hold, and before it has moved the alias."""
    promoted(registry, name, 1)
    promoted(registry, name, 2)
    champion = ModelRegistry.champion

    def meanwhile(self: ModelRegistry, name: str) -> Version | None:
        found = champion(self, name)
        monkeypatch.setattr(ModelRegistry, "champion", champion)
        ModelRegistry(uri).roll_back(name, None, "no good", who="ann")
        return found

    monkeypatch.setattr(ModelRegistry, "champion", meanwhile)
    assert registry.promote_instead(registry.version(name, 3), 2, "deployment a/b", "better") == "held"
    found = registry.champion(name)
    assert found is not None
    assert found.version == 1


def test_only_the_champion_that_it_was_compared_with_is_replaced(registry: ModelRegistry, name: str) -> None:
    promoted(registry, name, 2)
    assert registry.promote_instead(registry.version(name, 3), 1, "deployment a/b", "better") == "changed"
    found = registry.champion(name)
    assert found is not None
    assert found.version == 2


@pytest.mark.parametrize("text", ["{", "null", "[1]", '{"version": "x", "data": 3}'])
def test_a_hold_that_cannot_be_read_holds(registry: ModelRegistry, client: MlflowClient, name: str, text: str) -> None:
    promoted(registry, name, 1)
    client.set_registered_model_tag(name, HOLD_TAG, text)
    client.set_model_version_tag(name, "2", "superworkflow.decision", text)
    assert registry.promote_instead(registry.version(name, 2), 1, "x", "y") == "held"


@pytest.mark.parametrize("number", [None, 9])
def test_what_is_not_there(registry: ModelRegistry, name: str, number: int | None) -> None:
    with pytest.raises(UserError, match="no version challenges" if number is None else "no such model or version"):
        registry.promote(name, number, "why")
    with pytest.raises(UserError, match="no version is in use"):
        registry.roll_back(name, number, "why")
    with pytest.raises(UserError, match="no such model or version"):
        registry.versions("nobody")


def test_commands(registry: ModelRegistry, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    decision = Decision(name, 2, "rejected", "rejected: judge.f1 0.3 against 0.5", "judge.f1", 0.3, 1, 0.5, 0.0)
    registry.note(decision, {"judge.f1": 0.3})
    registry.challenge(registry.version(name, 2))
    assert main(["promote", name, "1", "--why", "the first"]) == 0
    assert main(["promote", name, "--why", "good enough for me"]) == 0
    assert main(["rollback", name, "--why", "it was not"]) == 0
    assert "version 1 is in use again instead of version 2" in capsys.readouterr().out
    assert main(["models", name]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "judge.f1 0.300" in shown
    assert "good enough for me" in shown
    assert "(it was not); runs promote nothing until `superworkflow promote`" in shown
    assert main(["models", "--json"]) == 0
    (listed,) = [each for each in json.loads(capsys.readouterr().out) if each["name"] == name]
    assert listed["hold"]["why"] == "it was not"
    assert [each["aliases"] for each in listed["versions"]] == [[], [], ["current"]]
    assert main(["promote", "a'b", "--why", "x"]) == 2
    assert "not a name that a model can have" in capsys.readouterr().err


def test_nothing_is_made_where_nothing_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert main(["models", "--store", str(tmp_path / "store")]) == 2
    assert "nothing is recorded here" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()
