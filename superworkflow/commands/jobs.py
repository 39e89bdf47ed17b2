"""`superworkflow jobs`: Jobs of stages in the cluster, and their removal."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table

from superworkflow.dashboards.whole_table import console
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.config.profile import load_profile


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--profile", default="kubernetes", help="profile with namespace and credentials; default kubernetes"
    )
    parser.add_argument("--namespace", help="namespace, instead of the profile's")
    parser.add_argument("--flow-run", metavar="ID", help="only the Jobs of this flow run")
    parser.add_argument("--clean", action="store_true", help="delete them, running ones too")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """List, or list and delete."""
    from superworkflow.infra.launch.kubernetes.api import KubernetesApi
    from superworkflow.infra.launch.kubernetes.job_admin import FoundJob, find_jobs, remove_jobs, with_cluster

    settings: KubernetesSettings = load_profile(options.profile).kubernetes
    if options.namespace:
        settings = settings.model_copy(update={"namespace": options.namespace})

    async def work(api: KubernetesApi) -> list[FoundJob]:
        found = await find_jobs(api, options.flow_run)
        if options.clean:
            await remove_jobs(api, found)
        return found

    jobs = with_cluster(settings, work)
    if options.json:
        print(json.dumps([asdict(job) for job in jobs], indent=1))
        return 0
    out = console(140, result=True)
    if not jobs:
        out.print("no Jobs")
        return 0
    table = Table("job", "stage", "state", "attempt", "flow run", "created")
    for job in jobs:
        table.add_row(job.name, job.node, job.state, job.attempt, job.flow_run, job.created)
    out.print(table)
    if options.clean:
        out.print(f"{len(jobs)} deleted")
    return 0
