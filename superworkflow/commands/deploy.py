"""`superworkflow deploy`: register a flow with a Prefect server, to be run from its pages or on a schedule."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import yaml

from superworkflow.arguments import (
    add_promotion_arguments,
    add_request_arguments,
    assignments_of,
    registration_from,
    sources_of,
    tables_from,
)
from superworkflow.deployed import EXPORTS, PULL_STEP, entrypoint, watcher
from superworkflow.flows import known_names, load_superworkflow
from superworkflow.infra.base.dotenv import COMPOSE
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.masking import has_password
from superworkflow.infra.config.prices import load_prices
from superworkflow.infra.config.profile import Profile, is_file, load_profile
from superworkflow.infra.config.profile_names import check_placements
from superworkflow.infra.config.request import parameters_of
from superworkflow.infra.contract.code_file import VARIABLE
from superworkflow.infra.contract.registration import REGISTRATION
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.launch.kubernetes.flow_pod import flow_pod_variables
from superworkflow.infra.orchestration import DEPLOYED_RETRIES
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.store import Store
from superworkflow.infra.storage.table_access import VARIABLE as TABLES_FROM
from superworkflow.infra.storage.warehouse.address import TableAddress
from superworkflow.version import __version__

if TYPE_CHECKING:
    from superworkflow.infra.orchestration.deployment import Deployment, Registered

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
WORKER_TRACKING = "SUPERWORKFLOW_WORKER_TRACKING_URI"
"""`MLFLOW_TRACKING_URI` of deployed runs, if workers reach MLflow at another address than this machine does."""
_KEPT = ".deployed"
"""Folder of the store with the profiles and price tables that deployments use."""


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    add_request_arguments(parser, given, reads=False)
    parser.add_argument("--name", required=True, help="name of the deployment, such as nightly")
    parser.add_argument("--pool", default="superworkflow", help="work pool; created if it does not exist")
    parser.add_argument(
        "--type", choices=("process", "kubernetes"),
        help="where the flow itself runs; by default where the profile's stages run",
    )  # fmt: skip
    parser.add_argument("--cron", metavar="LINE", help='schedule, such as "0 2 * * *" for two in the morning')
    parser.add_argument("--interval", metavar="TIME", help="schedule, such as 6h, 30m, 1d")
    parser.add_argument(
        "--timezone", metavar="ZONE", help="time zone of the schedule, such as Europe/Paris; default UTC"
    )
    parser.add_argument(
        "--when-changed", action="store_true",
        help="check the sources on this schedule, and run only if they have changed since the last run",
    )  # fmt: skip
    parser.add_argument(
        "--notify", metavar="URL|TYPE/NAME", action="append", default=[],
        help="webhook, or block on Prefect's server such as slack-webhook/team, to call when a run is rejected, fails "
        "or is late; may be repeated; `none` turns it off",
    )  # fmt: skip
    parser.add_argument(
        "--budget-usd", metavar="N/month",
        help="budget of its runs for a day, week or month: at 80%% --notify warns, and at its end the deployment is "
        "paused",
    )  # fmt: skip
    parser.add_argument("--image", help="image of the flow on Kubernetes; by default the profile's `flow` image")
    parser.add_argument(
        "--concurrency-limit", type=int, metavar="N", help="most runs at once; default 1 with a schedule, else no limit"
    )
    parser.add_argument(
        "--collisions", choices=("cancel", "wait"), default="cancel",
        help="at the concurrency limit: cancel the new run (default) or let it wait",
    )  # fmt: skip
    parser.add_argument(
        "--pause", action=argparse.BooleanOptionalAction, help="pause the schedule or resume it; default as it is"
    )
    parser.add_argument(
        "--variable", metavar="NAME=VALUE", action="append", default=[],
        help="variable of the work pool's template, such as memory=2Gi; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--register", metavar="NAME", help="name to register its models under; default SUPERWORKFLOW-NAME"
    )
    add_promotion_arguments(parser)
    parser.add_argument(
        "--export", action="append", default=[], metavar="OUTPUT=ADDRESS",
        help="also write an output, or a format as in `run`, "
        "after each run whose model is not rejected; may be repeated",
    )  # fmt: skip
    parser.add_argument("--update-pool", action="store_true", help="update the template of an existing pool")
    parser.add_argument("--remove", action="store_true", help="remove the deployment")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Register or remove the deployment, after all checks."""
    superworkflow = load_superworkflow(options.superworkflow)
    title = f"{superworkflow.name}/{options.name}"
    if options.remove:
        from superworkflow.infra.orchestration.deployment import remove

        removed = remove(superworkflow.name, options.name)
        print(json.dumps({"removed": removed}) if options.json else f"{title}: {'removed' if removed else 'not there'}")
        return 0
    made, done = register_deployment(superworkflow, options)
    from superworkflow.infra.orchestration.deployment import due_times

    if before := done.before:
        print(
            f"warning: {title} replaces the deployment of this name on pool {before['pool']} and store "
            f"{before['store']}. If that is another team's, deploy both again, under two names.",
            file=sys.stderr,
        )
    due = due_times(made.schedule)
    if options.json:
        document = {
            "name": title,
            "pool": options.pool,
            "type": made.pool_type,
            "parameters": made.parameters,
            "next": due,
        }
        print(json.dumps({**document, **asdict(done)}))
        return 0
    print(f"{title}: {'registered' if done.created else 'updated'} on the {made.pool_type} pool {options.pool}")
    if made.schedule is not None:
        when = options.cron or f"every {options.interval}"
        looks = ", runs only if the sources have changed" if options.when_changed else ""
        paused = ", paused until --no-pause" if done.paused else ""
        print(f"schedule     {when} ({options.timezone or 'UTC'}){looks}{paused}")
        print(f"next         {', '.join(due)}")
    print(f"page         {done.url}\nrun it now   prefect deployment run {title}")
    print(f"a worker     {worker_command(options.pool, made.pool_type, options.servers)}")
    return 0


def register_deployment(superworkflow: Superworkflow, options: argparse.Namespace) -> tuple[Deployment, Registered]:
    """Register the deployment, after all checks.

    Raises:
        UserError: the first invalid argument, or what the server refuses.
    """
    profile = load_profile(options.profile)
    check_placements(superworkflow, profile, options.profile, known_names)
    kind = options.type or profile.launcher
    parameters = _parameters(superworkflow, options, profile, kind)
    variables = _variables(options, profile, kind)
    if allowed := tables_from(options):
        variables.setdefault("env", {})[TABLES_FROM] = "\n".join(allowed)
    if options.export:
        from superworkflow.infra.orchestration.export import absolute, check_formats

        check_formats(superworkflow, options.export)
        variables.setdefault("env", {})[EXPORTS] = "\n".join(map(absolute, options.export))
    if superworkflow.code is not None:
        store = Store(options.store)
        store.check_writable()
        variables.setdefault("env", {})[VARIABLE] = superworkflow.code.keep(store)
    if budget := getattr(options, "budget_usd", None):
        from superworkflow.infra.orchestration import budget as budgets

        budgets.Budget.parse(budget)
        variables.setdefault("env", {})[budgets.VARIABLE] = budget
    if options.concurrency_limit is not None and options.concurrency_limit < 1:
        raise UserError("must be above 0", where="--concurrency-limit", value=options.concurrency_limit)
    from superworkflow.infra.orchestration.deployment import Deployment, make_schedule, register
    from superworkflow.infra.orchestration.notifications import check_targets

    check_targets(options.notify)

    schedule = make_schedule(options.cron, seconds_of(options.interval), options.timezone)
    if options.when_changed and schedule is None:
        raise UserError("needs a schedule on which to check the sources", where="--when-changed",
                        remedy="Give --interval 10m, or --cron")  # fmt: skip
    made = Deployment(
        superworkflow=superworkflow, name=options.name, entrypoint=entrypoint(superworkflow.name), pull_step=PULL_STEP,
        parameters=parameters, pool=options.pool, pool_type=kind, job_variables=variables, schedule=schedule,
        concurrency_limit=options.concurrency_limit or (1 if schedule is not None else None),
        collisions=options.collisions, paused=options.pause, version=__version__,
        watcher=watcher(superworkflow.name) if options.when_changed else "", notify=tuple(options.notify),
    )  # fmt: skip
    return made, register(made, update_pool=options.update_pool)


def worker_command(pool: str, kind: str, servers: str | None) -> str:
    """Command that starts what serves a pool; the servers of docker-compose.yml have one."""
    if kind == "kubernetes":
        return f"prefect worker start --pool {pool} --type {kind}"
    if servers == COMPOSE and pool == "superworkflow":
        return "docker compose up -d worker"
    return f"python -m superworkflow.worker {pool}"


def _parameters(
    superworkflow: Superworkflow, options: argparse.Namespace, profile: Profile, kind: str
) -> dict[str, Any]:
    """Parameters of the flow; files as URIs that the flow can open."""
    sources = sources_of(superworkflow, options)
    for name in superworkflow.sources:
        if name not in sources and name not in superworkflow.optional:
            raise UserError(f"{superworkflow.name} needs {superworkflow.sources[name]}", where=name,
                            remedy=f"Give it with --{name} URI")  # fmt: skip
    given = parameters_of(superworkflow, config=options.config, assignments=assignments_of(superworkflow, options))
    prices = options.prices or profile.prices
    load_prices(prices)
    store = Store(options.store)
    tables = {name: found for name, uri in sources.items() if (found := TableAddress.parse(uri)) is not None}
    for name, uri in {**sources, "store": store.uri}.items():
        if name not in tables:
            check_visible(name, Location.of(uri), profile, kind)
    if kind == "process":
        store.check_writable()
    values: dict[str, Any] = {
        name: tables[name].text if name in tables else Location.of(uri).uri for name, uri in sources.items()
    }
    values |= {prefix: model.model_dump(mode="json", exclude_unset=True) for prefix, model in given.items()}
    registration = registration_from(options, superworkflow, options.register)
    values[REGISTRATION] = registration.model_dump(mode="json", exclude_defaults=True)
    values |= {"profile": kept_copy(options.profile, store), "store": store.uri}
    if prices:
        values["prices"] = kept_copy(prices, store)
    return {name: value for name, value in values.items() if value != {}}


def kept_copy(name: str, store: Store) -> str:
    """The name of a shipped file; for a file of this machine, the URI of its copy in the store."""
    path = Location.of(name).local_path if is_file(name) else None
    if path is None:
        return name
    store.check_writable()
    return store.keep(path, _KEPT)


def check_visible(name: str, place: Location, profile: Profile, kind: str) -> None:
    """Refuse what a deployed flow could not open.

    Raises:
        UserError: the option, and where to put it.
    """
    if place.local_path is None:
        return
    if kind == "kubernetes" and not profile.kubernetes.covers(place.uri):
        raise UserError(
            "not visible to the flow's pod", where=f"--{name}", value=place.uri,
            remedy="Give a URI such as s3://bucket/name, or name its folder in the profile's kubernetes.volumes",
        )  # fmt: skip
    if kind == "process" and name != "store" and not place.local_path.exists():
        raise UserError("no such file", where=f"--{name}", value=place.uri, remedy="Check the path")


def _variables(options: argparse.Namespace, profile: Profile, kind: str) -> dict[str, Any]:
    """Values for the variables of the work pool's template."""
    if kind == "kubernetes" and profile.launcher != "kubernetes":
        raise UserError(
            "a flow in a Kubernetes pool starts its stages as Jobs", where="--profile", value=options.profile,
            remedy="Choose a profile with `launcher: kubernetes`",
        )  # fmt: skip
    if kind != "kubernetes" and options.image:
        raise UserError("only for --type kubernetes", where="--image", value=options.image)
    values = deployed_environment(profile, kind, options.image)
    for text in options.variable:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UserError("not of the form NAME=VALUE", where="--variable", value=text)
        read = yaml.safe_load(value)
        values[name] = {**values["env"], **read} if name == "env" and isinstance(read, dict) else read
    return {name: value for name, value in values.items() if value != {}}


def deployed_environment(profile: Profile, kind: str, image: str | None = None) -> dict[str, Any]:
    """Variables of the work pool's template that every deployed flow needs: environment and, in a pod, its place."""
    values: dict[str, Any] = {"env": {}}
    if kind == "kubernetes":
        values = flow_pod_variables(profile.kubernetes, image)
    values["env"] = {**DEPLOYED_RETRIES, **values["env"], **_tracking(kind)}
    return values


def _tracking(kind: str) -> Mapping[str, str]:
    """Tracking URI of deployed runs, from this command's environment, at the address by which workers reach it."""
    where = WORKER_TRACKING if os.environ.get(WORKER_TRACKING) else "MLFLOW_TRACKING_URI"
    uri = os.environ.get(where, "")
    if not uri:
        return {}
    if has_password(uri):
        raise UserError(
            "a deployment must not contain a password", where=where,
            remedy="Unset it here, and give it to the worker's environment or a Secret in kubernetes.env_secrets",
        )  # fmt: skip
    if kind == "kubernetes" and "://127.0.0.1" in uri.replace("localhost", "127.0.0.1"):
        raise UserError("pods cannot reach this address", where=where, value=uri,
                        remedy=f"Set {WORKER_TRACKING} to an address that the cluster can reach")  # fmt: skip
    if uri.startswith("sqlite:///"):
        return {"MLFLOW_TRACKING_URI": f"sqlite:///{Location.of(uri.removeprefix('sqlite:///')).uri}"}
    return {"MLFLOW_TRACKING_URI": uri}


def seconds_of(text: str | None) -> float | None:
    """Seconds of a duration such as `6h`; None where none is given."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if match is None:
        raise UserError("not a duration", where="--interval", value=text, remedy="Write one such as 6h, 30m, 1d")
    return float(match[1]) * _UNITS[match[2]]
