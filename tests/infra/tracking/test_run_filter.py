"""Filter of runs: the conditions that pages check themselves, and those that MLflow's search checks."""

from datetime import UTC, datetime

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.tracking.history import RecordedRun
from superworkflow.infra.tracking.run_filter import RunFilter, own_tags, parse_tag
from superworkflow.infra.tracking.tags import DEPLOYMENT_TAG, NOTE_TAG


def _run(status: str = "FINISHED", outcome: str = "", **tags: str) -> RecordedRun:
    named = {name.replace("__", "."): value for name, value in tags.items()}
    return RecordedRun("6f" * 16, "calm fox", "hubs", status, datetime.now(UTC), {}, {}, {}, {}, outcome=outcome,
                       tags=named | {"superworkflow.name": "hubs", DEPLOYMENT_TAG: "hubs/nightly"})  # fmt: skip


@pytest.mark.parametrize(
    ("which", "run", "passes"),
    [
        (RunFilter(), _run(), True),
        (RunFilter(superworkflow="hubs", deployment="nightly"), _run(), True),
        (RunFilter(deployment="hubs/nightly"), _run(), True),
        (RunFilter(deployment="night"), _run(), False),
        (RunFilter(superworkflow="other"), _run(), False),
        (RunFilter(outcome="completed"), _run(outcome="promoted"), True),
        (RunFilter(outcome="completed"), _run(outcome="rejected"), False),
        (RunFilter(outcome="rejected"), _run(outcome="rejected"), True),
        (RunFilter(outcome="failed"), _run("FAILED"), True),
        (RunFilter(tag="keep"), _run(keep=""), True),
        (RunFilter(tag="owner=ann"), _run(owner="ann"), True),
        (RunFilter(tag="owner=ann"), _run(owner="bob"), False),
        (RunFilter(text="FOX"), _run(), True),
        (RunFilter(text="6f6f"), _run(), True),
        (RunFilter(text="longer"), _run(**{NOTE_TAG.replace(".", "__"): "The longer one"}), True),
        (RunFilter(text="hubs"), _run(), False),
    ],
)  # fmt: skip
def test_conditions(which: RunFilter, run: RecordedRun, passes: bool) -> None:
    assert which.matches(run) is passes


def test_own_tags_are_those_of_people() -> None:
    assert own_tags(_run(keep="", mlflow__user="ann", outcome="finished").tags) == {"keep": ""}
    assert parse_tag("owner = ann") == ("owner", "ann")


@pytest.mark.parametrize("text", ["", "=1", "superworkflow.name=x", "mlflow.note.content", "a`b"])
def test_tags_of_the_program_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="not a tag"):
        parse_tag(text)


def test_a_wrong_outcome_is_refused_with_what_was_meant() -> None:
    with pytest.raises(UserError, match="Did you mean rejected"):
        RunFilter(outcome="rejcted")
