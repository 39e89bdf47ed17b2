"""Deployments: a superworkflow registered with a Prefect server, to be run from there or on a schedule by a worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.objects import ConcurrencyLimitStrategy, ConcurrencyOptions, WorkPool
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound, PrefectHTTPStatusError
from prefect.server.schemas import schedules as server_schedules
from prefect.utilities.callables import ParameterSchema
from prefect.workers.process import ProcessWorker
from pydantic import ValidationError

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.launch.kubernetes.flow_pod import pool_template
from superworkflow.infra.orchestration.notifications import NO_TARGET, set_notifications
from superworkflow.infra.orchestration.parameters import flow_schema
from superworkflow.infra.orchestration.pending_timeout import PENDING_TIMEOUT, set_pending_timeout
from superworkflow.infra.orchestration.server import api_url, page
from superworkflow.infra.orchestration.source_trigger import make_watching_flow, watching_flow_name

PoolType = Literal["process", "kubernetes"]
Schedule = CronSchedule | IntervalSchedule
Collisions = Literal["cancel", "wait"]

LEAST_INTERVAL_S, MOST_INTERVAL_S = 10, 10 * 366 * 86_400
"""Seconds of an interval; a run takes seconds to start."""
_REMEDIES = {
    "cron": 'Write minute, hour, day, month, weekday: "0 2 * * *"', "interval": "Write one such as 6h, 30m, 1d",
    "timezone": "Write one such as Europe/Paris",
}  # fmt: skip
_STRATEGIES: Mapping[Collisions, ConcurrencyLimitStrategy] = {
    "cancel": ConcurrencyLimitStrategy.CANCEL_NEW, "wait": ConcurrencyLimitStrategy.ENQUEUE,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FlowDeployment:
    """Deployment of a flow, as it is registered.

    Args:
        name: of the deployment; with the flow's name it is unique on a server.
        entrypoint: import path of the flow where it will run.
        pull_step: import path of a function to run first. Without one Prefect copies the working folder of whatever
            starts the flow, taking that for its code: in a container with `/` that is the whole file system.
        parameters: values of the flow's parameters that differ from their defaults.
        pool: name of the work pool, made when there is none.
        pool_type: its type.
        job_variables: values for the variables of the pool's template.
        schedule: when it runs by itself, if it does.
        concurrency_limit: runs of it that may be in progress at once.
        collisions: whether a run above the limit is cancelled, or waits.
        paused: whether its schedule is paused; None leaves that as it is.
        version: of the project.
    """

    name: str
    entrypoint: str
    pull_step: str
    parameters: Mapping[str, Any]
    pool: str
    pool_type: PoolType
    job_variables: Mapping[str, Any] = field(default_factory=dict)
    schedule: Schedule | None = None
    concurrency_limit: int | None = None
    collisions: Collisions = "cancel"
    paused: bool | None = None
    version: str | None = None

    def create(self, client: SyncPrefectClient, flow: str, description: str | None, schema: ParameterSchema) -> UUID:
        """Create or update it on the server; its id.

        Args:
            client: of the server.
            flow: name of the flow.
            description: of the deployment.
            schema: of the flow's parameters.
        """
        return client.create_deployment(
            flow_id=client.create_flow_from_name(flow),
            name=self.name,
            version=self.version,
            description=description,
            entrypoint=self.entrypoint,
            parameters=dict(self.parameters),
            parameter_openapi_schema=schema.model_dump(exclude_unset=True),
            enforce_parameter_schema=True,
            work_pool_name=self.pool,
            job_variables=dict(self.job_variables),
            schedules=[DeploymentScheduleCreate(schedule=self.schedule)] if self.schedule is not None else [],
            concurrency_limit=self.concurrency_limit,
            concurrency_options=ConcurrencyOptions(collision_strategy=_STRATEGIES[self.collisions]),
            paused=self.paused,
            pull_steps=[{self.pull_step: {}}],
            tags=["superworkflow"],
        )


@dataclass(frozen=True, kw_only=True)
class Deployment(FlowDeployment):
    """Deployment of a superworkflow.

    Args:
        superworkflow: which pipeline.
        watcher: import path of the flow that watches its sources, where it will run. With one the schedule is the
            watcher's, and the deployment runs when they have been written; empty for none.
        notify: targets of notifications, see `infra.orchestration.notifications`; empty leaves them as they are.
    """

    superworkflow: Superworkflow
    watcher: str = ""
    notify: tuple[str, ...] = ()


@dataclass(frozen=True)
class Registered:
    """Deployment as the server has it.

    Args:
        id: of the deployment.
        url: its page.
        created: whether it is new; it was updated otherwise.
        pool_created: whether its work pool is new.
        watcher: id of the deployment that watches its sources; empty where none does.
        paused: whether it is paused, as before or by its own setting.
        before: pool and store that it had, where one of them differs: it may be another team's.
    """

    id: str
    url: str
    created: bool
    pool_created: bool
    watcher: str = ""
    paused: bool = False
    before: Mapping[str, str] = field(default_factory=dict)


def make_schedule(cron: str | None, interval_s: float | None, timezone: str | None) -> Schedule | None:
    """The schedule that these ask for, if any.

    Raises:
        UserError: a cron line or time zone that is none, both a cron line and an interval, a zone for neither, a
            schedule in seconds, or one that is never due.
    """
    if cron is not None and interval_s is not None:
        raise UserError("not together with --cron", where="--interval", remedy="Give one of them")
    if cron is None and interval_s is None:
        if timezone is not None:
            raise UserError("only with --cron or --interval", where="--timezone", value=timezone)
        return None
    if cron is not None and len(cron.split()) > 5:
        raise UserError("has a field for seconds, in which it would start sixty runs a minute", where="--cron",
                        value=cron, remedy=_REMEDIES["cron"])  # fmt: skip
    if interval_s is not None and not LEAST_INTERVAL_S <= interval_s <= MOST_INTERVAL_S:
        raise UserError(f"not between {LEAST_INTERVAL_S} s and 10 years", where="--interval", value=f"{interval_s:g} s",
                        remedy=_REMEDIES["interval"])  # fmt: skip
    zone = timezone or "UTC"
    try:
        if cron is not None:
            schedule: Schedule = CronSchedule(cron=cron, timezone=zone)
        else:
            schedule = IntervalSchedule(interval=timedelta(seconds=interval_s or 0), timezone=zone)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "cron"
        message = first["msg"].removeprefix("Value error, ").rstrip(".")
        value = {"cron": cron, "interval": f"{interval_s or 0:g} s", "timezone": timezone}[name]
        raise UserError(message, where=f"--{name}", value=value, remedy=_REMEDIES[name]) from None
    try:
        next_times(schedule, 1)
    except ValueError:
        raise UserError("no day is in this schedule", where="--cron", value=cron, remedy=_REMEDIES["cron"]) from None
    return schedule


def next_times(schedule: Schedule, count: int) -> list[datetime]:
    """Times of the next runs in the schedule's zone, computed as the server does.

    Raises:
        ValueError: it is never due.
    """
    on_server = getattr(server_schedules, type(schedule).__name__)
    dates = on_server.model_validate(schedule.model_dump()).get_dates(count)
    with ThreadPoolExecutor(1) as pool:  # a notebook's thread has a loop that runs already
        return [*pool.submit(asyncio.run, dates).result()]


def due_times(schedule: Schedule | None) -> list[str]:
    """Times of the next three runs for people."""
    return [each.isoformat(" ", "seconds") for each in next_times(schedule, 3)] if schedule is not None else []


def register(deployment: Deployment, *, update_pool: bool = False) -> Registered:
    """Create or update a deployment, and its work pool where there is none.

    Args:
        deployment: what to register.
        update_pool: also replace the template of a pool that is there.

    Raises:
        UserError: no server, a pool of another type, or what the server refuses.
    """
    with reached_server() as client:
        pool, pool_created = ensure_pool(client, deployment.pool, deployment.pool_type, update_pool)
        _check_variables(pool, deployment.job_variables)
        existing = _find(client, deployment.superworkflow.name, deployment.name)
        own = replace(deployment, schedule=None) if deployment.watcher else deployment
        superworkflow = deployment.superworkflow
        made = own.create(client, superworkflow.name, superworkflow.help, flow_schema(superworkflow))
        watcher = _set_watcher(client, deployment)
        title, ids = f"{deployment.superworkflow.name}/{deployment.name}", [made, *filter(None, [watcher])]
        set_pending_timeout(client, title, ids, PENDING_TIMEOUT[deployment.pool_type])
        if deployment.notify:
            targets = [target for target in deployment.notify if target != NO_TARGET]
            set_notifications(client, title, ids, targets)
        url = page(f"deployments/deployment/{made}")
        paused = client.read_deployment(watcher or made).paused
        return Registered(
            str(made), url, existing is None, pool_created, str(watcher or ""), paused, _replaced(existing, deployment)
        )


def _replaced(existing: DeploymentResponse | None, deployment: Deployment) -> dict[str, str]:
    """Pool and store of the deployment that was replaced, if one of them is another now."""
    if existing is None:
        return {}
    before = {"pool": str(existing.work_pool_name), "store": str(existing.parameters.get("store"))}
    now = {"pool": deployment.pool, "store": str(deployment.parameters.get("store"))}
    return {} if before == now else before


def _set_watcher(client: SyncPrefectClient, deployment: Deployment) -> UUID | None:
    """Make, update or remove the deployment that watches the sources; its id."""
    name = watching_flow_name(deployment.superworkflow.name)
    if not deployment.watcher:
        if (existing := _find(client, name, deployment.name)) is not None:
            client.delete_deployment(existing.id)
        return None
    flow = make_watching_flow(deployment.superworkflow)
    watched = {"deployment": f"{deployment.superworkflow.name}/{deployment.name}"}
    own = replace(
        deployment, entrypoint=deployment.watcher, parameters=watched, concurrency_limit=1, collisions="cancel"
    )
    return own.create(client, name, flow.description, flow.parameters)


def remove(superworkflow: str, name: str) -> bool:
    """Remove a deployment and what belongs to it; False when there was none.

    Its work pool and the records of its runs stay.

    Raises:
        UserError: no server.
    """
    with reached_server() as client:
        existing = _find(client, superworkflow, name)
        watcher = _find(client, watching_flow_name(superworkflow), name)
        for each in (existing, watcher):
            if each is not None:
                client.delete_deployment(each.id)
        set_notifications(client, f"{superworkflow}/{name}", [], [])
        set_pending_timeout(client, f"{superworkflow}/{name}", [], PENDING_TIMEOUT["process"])
        return existing is not None


@contextlib.contextmanager
def reached_server() -> Iterator[SyncPrefectClient]:
    """A client of the server that `PREFECT_API_URL` names.

    Raises:
        UserError: none is named, it cannot be reached, or it refuses.
    """
    url = api_url()
    if not url:
        raise UserError(
            "a deployment needs a Prefect server", where="PREFECT_API_URL",
            remedy="Start one with `prefect server start` and set PREFECT_API_URL=http://127.0.0.1:4200/api",
        )  # fmt: skip
    try:
        httpx.get(f"{url.rstrip('/')}/health", timeout=20).raise_for_status()
        with get_client(sync_client=True) as client:
            yield client
    except PrefectHTTPStatusError as error:
        raise UserError(f"Prefect refused: {_detail(error)}", where=url) from None
    except httpx.HTTPError as error:
        remedy = "Start the server, or correct PREFECT_API_URL"
        raise UserError(f"Prefect cannot be reached: {error}", where=url, remedy=remedy) from None


def _detail(error: PrefectHTTPStatusError) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(error.response.json()["detail"])
    return str(error).splitlines()[0]


def ensure_pool(client: SyncPrefectClient, name: str, kind: PoolType, update: bool) -> tuple[WorkPool, bool]:
    """The work pool of this name, made where there is none; whether it was made."""
    template = pool_template() if kind == "kubernetes" else ProcessWorker.get_default_base_job_template()
    try:
        pool = client.read_work_pool(name)
    except ObjectNotFound:
        made = WorkPoolCreate(
            name=name, type=kind, base_job_template=template, description="Flows deployed by superworkflow."
        )
        try:
            return client.create_work_pool(made), True
        except ObjectAlreadyExists:  # by a worker that has started since
            pool = client.read_work_pool(name)
    if pool.type != kind:
        raise UserError(
            f"this work pool is of another type than {kind}", where=f"--pool {name}", value=pool.type,
            remedy="Choose another pool, or the --type of this one",
        )  # fmt: skip
    if update:
        client.update_work_pool(name, WorkPoolUpdate(base_job_template=template))
        pool = client.read_work_pool(name)
    return pool, False


def _check_variables(pool: WorkPool, given: Mapping[str, Any]) -> None:
    """Refuse variables that the pool's template lacks: Prefect would ignore them and start the flow without."""
    valid = list(pool.base_job_template.get("variables", {}).get("properties", {}))
    for name in given:
        if name not in valid:
            remedy = nearest(name, valid).rstrip(".")
            raise UserError(
                "the template of this work pool has no such variable", where=f"--pool {pool.name}", value=name,
                remedy=f"{remedy}{'' if '?' in remedy else '.'} Or choose another pool, or replace its template with "
                "--update-pool",
            )  # fmt: skip


def _find(client: SyncPrefectClient, superworkflow: str, name: str) -> DeploymentResponse | None:
    try:
        return client.read_deployment_by_name(f"{superworkflow}/{name}")
    except ObjectNotFound:
        return None
