"""Deployments of a Prefect server with their schedules and next runs, for pages that show them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import PrefectHTTPStatusError

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.masking import masked
from superworkflow.infra.contract.resources import format_seconds
from superworkflow.infra.orchestration.server import api_url, page
from superworkflow.infra.orchestration.source_trigger import watching_flow_name

TAG = "superworkflow"
"""Tag of the deployments that this project registers."""
SECONDS = 5.0
"""Timeout of a request."""
MOST = 200


@dataclass(frozen=True)
class Scheduled:
    """One deployment.

    Args:
        name: of the flow and of the deployment.
        schedule: in words, its own or that of its watcher; empty where it has none.
        next_run: when the next one, or the next check of its sources, is due; None where none is.
        url: of its page.
    """

    id: str
    name: str
    schedule: str
    paused: bool
    next_run: datetime | None
    url: str


def scheduled_deployments() -> list[Scheduled] | str | None:
    """This project's deployments; None where no server is named, an error text where it does not respond."""
    if not api_url():
        return None
    try:
        with get_client(sync_client=True, httpx_settings={"timeout": SECONDS}) as client:
            flows = {each.id: each.name for each in client.read_flows(limit=MOST)}
            ours = [each for each in client.read_deployments(limit=MOST) if TAG in each.tags]
            # One by one: a schedule has up to 100 runs in advance, so those of two would fill a page of all of them.
            due = {each.id: _next_run(client, each.id) for each in ours}
    except (httpx.HTTPError, PrefectHTTPStatusError) as error:
        return masked(f"Prefect cannot be reached: {type(error).__name__}")
    names = {each.id: f"{flows.get(each.flow_id, '?')}/{each.name}" for each in ours}
    watchers = {
        title: each
        for each in ours
        if (title := str(each.parameters.get("deployment", ""))) in names.values()
        and names[each.id] == watching_flow_name(title)
    }
    found = []
    for each in ours:
        if each in watchers.values():
            continue  # its schedule is that of the deployment that it starts
        watcher = watchers.get(names[each.id])
        timed = watcher or each
        words = [_words(schedule.schedule) for schedule in timed.schedules]
        words += ["if the sources have changed"] if watcher is not None else []
        found.append(Scheduled(
            str(each.id), names[each.id], ", ".join(words), bool(timed.paused or each.paused), due[timed.id],
            page(f"deployments/deployment/{each.id}"),
        ))  # fmt: skip
    return found


def _next_run(client: SyncPrefectClient, deployment: UUID) -> datetime | None:
    """When the next run of a deployment is due; None if none is."""
    runs = client.read_flow_runs(
        flow_run_filter=FlowRunFilter.model_validate({
            "state": {"type": {"any_": ["SCHEDULED"]}}, "deployment_id": {"any_": [deployment]},
        }),
        sort=FlowRunSort.EXPECTED_START_TIME_ASC, limit=1,
    )  # fmt: skip
    return runs[0].expected_start_time if runs else None


def _words(schedule: object) -> str:
    if isinstance(schedule, CronSchedule):
        return f"{schedule.cron} ({schedule.timezone or 'UTC'})"
    if isinstance(schedule, IntervalSchedule):
        return f"every {format_seconds(schedule.interval.total_seconds())}"
    return str(schedule)


def deployment_texts() -> list[str]:
    """Parameters and variables of all deployments, as JSON; none where no server is named.

    Raises:
        UserError: the server cannot be reached.
    """
    if not api_url():
        return []
    found: list[Any] = []
    try:
        with get_client(sync_client=True) as client:
            while page_of := client.read_deployments(limit=MOST, offset=len(found)):
                found += page_of
    except (httpx.HTTPError, PrefectHTTPStatusError) as error:
        raise UserError(
            f"Prefect cannot be reached: {type(error).__name__}", where="PREFECT_API_URL",
            remedy="Start the server, or unset the variable: what deployments name is then not looked at",
        ) from None  # fmt: skip
    return [json.dumps([each.parameters, each.job_variables], default=str) for each in found]
