"""`superworkflow prune`: removes datasets, checkpoints and records that nothing kept refers to."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from superworkflow.infra.base.extras import require_extra
from superworkflow.infra.config.prices import load_prices
from superworkflow.infra.config.profile import load_profile
from superworkflow.infra.config.request import default_store
from superworkflow.infra.contract.resources import format_bytes, format_usd
from superworkflow.infra.storage.store import Store
from superworkflow.version import __version__

if TYPE_CHECKING:
    from superworkflow.infra.orchestration.pruning import Pruning


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--keep", required=True, metavar="champions,30d",
        help="what stays: `champions` alone; a duration (12h, 30d, 8w), for runs and versions of models up to that age "
        "as well; `versions`, for every version of a model",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="show what would be removed, and remove nothing")
    parser.add_argument("--store", default=default_store(), metavar="URI", help="store that is pruned")
    parser.add_argument(
        "--profile", default="laptop", help="profile whose cluster is pruned as well; default laptop, which has none"
    )
    parser.add_argument("--deploy", metavar="NAME", help="register a deployment that prunes, instead of pruning now")
    parser.add_argument("--cron", metavar="LINE", help='schedule of the deployment, such as "0 4 * * 0"')
    parser.add_argument("--interval", metavar="TIME", help="schedule of the deployment, such as 7d")
    parser.add_argument("--timezone", metavar="ZONE", help="time zone of the schedule; default UTC")
    parser.add_argument("--pool", default="superworkflow", help="work pool of the deployment")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Show what goes, and remove it; or register the deployment."""
    require_extra("flow")
    from superworkflow.infra.orchestration.pruning import Pruner
    from superworkflow.infra.tracking.pruning import Keep
    from superworkflow.infra.tracking.uris import default_tracking_uri

    keep, profile = Keep.parse(options.keep), load_profile(options.profile)
    store = Store(options.store)
    if options.deploy:
        return _deploy(options, store)
    pruner = Pruner(store, default_tracking_uri(store.root), keep, profile)
    out = Console(highlight=False, emoji=False, quiet=options.json)
    if options.dry_run:
        found = pruner.look()
        _show(out, found, store.uri)
    else:
        found = pruner.remove(out.print, lambda seen: _show(out, seen, store.uri))
    for note in found.notes:
        out.print(f"left: {note}", markup=False)
    if options.json:
        print(json.dumps({**found.document(), "dry_run": options.dry_run}, indent=1))
    elif options.dry_run:
        out.print("nothing was removed (--dry-run)")
    return 0


def _show(out: Console, found: Pruning, store: str) -> None:
    """Sizes of what stays and of what goes."""
    monthly = load_prices().storage_cost(found.inventory.bytes)
    out.print(f"{store}: {format_bytes(found.inventory.bytes)}, {format_usd(monthly)} a month", markup=False)
    kept = found.document()["kept"]
    assert isinstance(kept, dict)
    out.print("keeps " + ", ".join(f"{each} {kind if each != 1 else kind[:-1]}" for kind, each in kept.items()))
    table = Table("to remove", box=None)
    table.add_column("number", justify="right")
    table.add_column("size", justify="right")
    for kind, number, size in found.rows:
        if number:
            table.add_row(kind, str(number), format_bytes(size) if size else "")
    if table.rows:
        table.add_row("total", "", format_bytes(found.bytes))
        out.print(table)
        largest = sorted(found.datasets, key=lambda each: -each.bytes)[:5]
        for each in largest:
            out.print(f"  {each.name}  {format_bytes(each.bytes)}", markup=False)
    else:
        out.print("nothing to remove")


def _deploy(options: argparse.Namespace, store: Store) -> int:
    from superworkflow.commands.deploy import check_visible, deployed_environment, kept_copy, seconds_of
    from superworkflow.deployed import PRUNING, PULL_STEP
    from superworkflow.infra.orchestration.deployment import FlowDeployment, due_times, make_schedule
    from superworkflow.infra.orchestration.pruning_flow import register_pruning

    schedule = make_schedule(options.cron, seconds_of(options.interval), options.timezone)
    profile = load_profile(options.profile)
    check_visible("store", store.root, profile, profile.launcher)
    done = register_pruning(
        FlowDeployment(
            name=options.deploy, entrypoint=PRUNING, pull_step=PULL_STEP, pool=options.pool,
            pool_type=profile.launcher, job_variables=deployed_environment(profile, profile.launcher),
            parameters={"store": store.uri, "keep": options.keep, "profile": kept_copy(options.profile, store)},
            schedule=schedule, version=__version__,
        )
    )  # fmt: skip
    due = due_times(schedule)
    if options.json:
        print(json.dumps({"name": f"prune/{options.deploy}", "id": done.id, "url": done.url, "next": due}))
        return 0
    print(f"prune/{options.deploy}: registered on the pool {options.pool}")
    if due:
        print(f"next         {', '.join(due)}")
    print(f"page         {done.url}\nrun it now   prefect deployment run prune/{options.deploy}")
    return 0
