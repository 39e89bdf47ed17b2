"""Budgets of deployments."""

from datetime import UTC, datetime

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.orchestration.budget import Budget
from superworkflow.infra.orchestration.notifications import EVENTS

NOW = datetime(2026, 11, 25, 2, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "began"),
    [("50/month", datetime(2026, 11, 1, tzinfo=UTC)), ("7.5/week", datetime(2026, 11, 23, tzinfo=UTC)),
     ("1/day", datetime(2026, 11, 25, tzinfo=UTC))],
)  # fmt: skip
def test_a_budget_is_of_a_calendar_period(text: str, began: datetime) -> None:
    budget = Budget.parse(text)
    assert budget.usd == float(text.split("/")[0])
    assert budget.began(NOW) == began


@pytest.mark.parametrize(
    ("before", "spent", "event"),
    [(0, 39, ""), (39, 40, EVENTS[0]), (40, 49, ""), (49, 50, EVENTS[1]), (55, 60, EVENTS[1]), (0, 70, EVENTS[1])],
)  # fmt: skip
def test_people_are_warned_once_and_then_it_is_paused(before: float, spent: float, event: str) -> None:
    assert Budget.parse("50/month").event(before, spent) == event


@pytest.mark.parametrize("text", ["50", "0/month", "-1/day", "50/year", "fifty/month"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--budget-usd"):
        Budget.parse(text)
