"""A run on this machine where no Prefect server is named: without Prefect.

A temporary server, which would show the run to nobody, and Prefect's imports take twenty CPU seconds. The record of the
run is in MLflow, as of every run.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from graphlib import TopologicalSorter
from pathlib import Path
from uuid import uuid4

from superworkflow.infra.base.errors import Stopped
from superworkflow.infra.config.request import Request
from superworkflow.infra.contract.diagram import Node
from superworkflow.infra.launch.base import Launcher
from superworkflow.infra.orchestration.followed_node import Listener, follow_node
from superworkflow.infra.orchestration.promotion import register_and_promote, terms_of, warm
from superworkflow.infra.orchestration.run_node import used_datasets
from superworkflow.infra.orchestration.run_record import begin_record, close_record, name_outputs
from superworkflow.infra.storage.holds import holding
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.records import RunRecord

_log = logging.getLogger(__name__)


def needs_no_server(request: Request) -> bool:
    """True if all stages are of this machine or cached, and no setting of Prefect may name a server."""
    return (request.profile.launcher == "process" or request.is_complete()) and not _may_name_server()


def _may_name_server() -> bool:
    """Ask Prefect if this process has imported it, else read its sources of settings."""
    if os.environ.get("PREFECT_API_URL"):
        return True
    if "prefect" in sys.modules:
        from superworkflow.infra.orchestration.server import page

        return bool(page(""))
    if "PREFECT_API_URL" in os.environ:  # set and empty means unset
        return False
    home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    profiles = Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml")
    try:
        if "PREFECT_PROFILE" in os.environ or Path("prefect.toml").exists():
            return True
        words = ((Path(".env"), "PREFECT_API"), (Path("pyproject.toml"), "[tool.prefect"))
        if any(path.exists() and word in path.read_text().replace(" ", "") for path, word in words):
            return True
        found = tomllib.loads(profiles.read_text()) if profiles.exists() else {}
        return "PREFECT_API_URL" in found.get("profiles", {}).get(found.get("active", ""), {})
    except (OSError, ValueError, AttributeError):
        return True


def run_here(
    request: Request,
    tracker: Tracker,
    launcher: Launcher,
    listener: Listener,
    finish: Callable[[RunRecord, Tracker], None],
    name: str | None,
) -> RunRecord:
    """Run the stages in order, as many at once as the profile says, and record them.

    After a failure no further stage starts; those that run already are finished, and their datasets kept.

    Args:
        request: of the run.
        tracker: that keeps its record.
        launcher: prepared.
        listener: follows the run.
        finish: last step, after all stages.
        name: of the run; by default that of the superworkflow with the time.

    Raises:
        SuperworkflowError: a stage failed, or the run was cancelled (`Stopped`).
    """
    started, now = time.monotonic(), datetime.now(UTC)
    terms = terms_of(request, None)
    request = warm(request, tracker, terms)
    run = begin_record(request, tracker, name or f"{request.superworkflow.name} {now:%Y-%m-%d %H:%M:%S}")

    def run_nodes(nodes: Sequence[Node]) -> None:
        hold.add(used_datasets(nodes))
        cached, before = all(request.store.has(node.stage.name, node.digest) for node in nodes), len(run.stages)
        keep = (lambda record: None) if cached else tracker.stage
        try:
            run_each(
                nodes, lambda node: follow_node(node, request, launcher, keep, listener, run),
                request.profile.concurrency, launcher.cancel,
            )  # fmt: skip
        finally:
            if cached:  # together: each write waits for the disk
                tracker.stages(run.stages[before:])
        order = {node.name: place for place, node in enumerate(nodes)}
        run.stages.sort(key=lambda record: order.get(record.name, -1))  # those of earlier nodes stay before them

    with holding(request.store.root, run.run_id or uuid4().hex) as hold:
        try:
            tracker.sources(run.sources)
            run_nodes(list(request.diagram.nodes.values()))
            name_outputs(request, run, _log.warning)
            run.decisions += register_and_promote(request, run, tracker, terms, run_nodes)
            run.close(request.prices, time.monotonic() - started)
            finish(run, tracker)
            tracker.finish(run)
        except BaseException as error:
            launcher.cancel()
            run.close(request.prices, time.monotonic() - started)
            close_record(tracker, run, error, _log.warning)
            raise
    return run


def run_each(nodes: Sequence[Node], work: Callable[[Node], object], at_once: int, cancel: Callable[[], None]) -> None:
    """Do `work` for each node after those of `nodes` that it needs, otherwise in their order.

    Args:
        nodes: in an order in which they could run one by one.
        work: called in threads.
        at_once: largest number of calls at the same time.
        cancel: ends the calls; called when this thread is interrupted.

    Raises:
        BaseException: of `work` for the first node that failed, rather one that says that it was stopped.
    """
    by_name, place = {node.name: node for node in nodes}, {node.name: place for place, node in enumerate(nodes)}
    order = TopologicalSorter({node.name: {each.name for each in node.upstream} & by_name.keys() for node in nodes})
    order.prepare()
    ready, running, failed = list[str](), dict[Future[object], str](), dict[str, BaseException]()
    with ThreadPoolExecutor(at_once, thread_name_prefix="stage") as pool:
        try:
            while order.is_active():
                ready = sorted([*ready, *order.get_ready()], key=place.__getitem__)
                while ready and len(running) < at_once and not failed:
                    name = ready.pop(0)
                    running[pool.submit(work, by_name[name])] = name
                if not running:
                    break
                for ended in wait(running, return_when=FIRST_COMPLETED).done:
                    name = running.pop(ended)
                    error = ended.exception()
                    if error is None:
                        order.done(name)
                    else:
                        failed[name] = error
        except BaseException:
            cancel()  # before the pool waits for its threads
            raise
    first = [failed[node.name] for node in nodes if node.name in failed]
    if first:
        raise next((error for error in first if isinstance(error, Stopped)), first[0])
