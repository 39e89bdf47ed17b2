"""Deployments as pages show them."""

from datetime import timedelta

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.settings import PREFECT_API_URL, temporary_settings

from superworkflow.infra.orchestration.schedules import MOST, TAG, scheduled_deployments
from superworkflow.infra.orchestration.source_trigger import watching_flow_name

FLOW = "shown-by-schedules"


def test_a_watcher_is_the_schedule_of_what_it_starts(prefect_api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind more runs in advance than a page of the server has."""
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    made = []
    with temporary_settings({PREFECT_API_URL: prefect_api}), get_client(sync_client=True) as client:
        for flow, minutes, given in (
            (FLOW, None, {}),
            (watching_flow_name(FLOW), 10, {"deployment": f"{FLOW}/n"}),
            (f"{FLOW}-often", 1, {}),
        ):
            every = [IntervalSchedule(interval=timedelta(minutes=minutes))] if minutes else []
            made.append(client.create_deployment(
                client.create_flow_from_name(flow), "n", tags=[TAG], parameters=given,
                schedules=[DeploymentScheduleCreate(schedule=each) for each in every], paused=True,
            ))  # fmt: skip
        for _ in range(MOST + 1):
            client.create_flow_run_from_deployment(made[2])
        late = client.create_flow_run_from_deployment(made[1])
        found = scheduled_deployments()
        for each in made:
            client.delete_deployment(each)
    assert isinstance(found, list)
    (shown, _) = (each for each in found if each.name.startswith(FLOW))
    assert (shown.name, shown.schedule) == (f"{FLOW}/n", "every 10 m 00 s, if the sources have changed")
    assert shown.next_run == late.expected_start_time
    assert not [each for each in found if each.name.startswith("watch-")]
