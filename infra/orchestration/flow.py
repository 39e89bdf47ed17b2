"""Any superworkflow as a Prefect flow: one task for each node of its diagram.

Works with the server that `PREFECT_API_URL` names, and with Prefect's own temporary server when it names none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prefect import Flow, Task, flow, get_run_logger, task
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import State
from prefect.exceptions import TerminationSignal
from prefect.futures import PrefectFuture
from prefect.states import Cancelled, Completed, Failed
from prefect.task_runners import ThreadPoolTaskRunner

from superworkflow.infra.base.errors import StageFailed, Stopped, SuperworkflowError
from superworkflow.infra.config.profile import Profile
from superworkflow.infra.config.request import Request, check_machine
from superworkflow.infra.contract.diagram import Node
from superworkflow.infra.contract.metrics import drift_texts, figures
from superworkflow.infra.contract.progress import progress_text
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.launch import make_launcher, prepare_launcher
from superworkflow.infra.launch.base import Event, Launcher
from superworkflow.infra.orchestration.budget import keep_to_budget
from superworkflow.infra.orchestration.comparison_nodes import measure_drift
from superworkflow.infra.orchestration.deployed_run import (
    REJECTED_TAG,
    DeployedRun,
    current_flow_run,
    deployed_run,
    mark,
    nothing_new,
    skip_backlog,
)
from superworkflow.infra.orchestration.followed_node import Listener, follow_node
from superworkflow.infra.orchestration.liveness import enter_flow, signs_of_life
from superworkflow.infra.orchestration.parameters import flow_schema, flow_signature, request_of
from superworkflow.infra.orchestration.progress_artifact import ProgressArtifact
from superworkflow.infra.orchestration.promotion import behind, register_and_promote, terms_of, warm
from superworkflow.infra.orchestration.run_node import used_datasets
from superworkflow.infra.orchestration.run_record import begin_record, close_record, name_outputs
from superworkflow.infra.orchestration.server import ask_once, page
from superworkflow.infra.storage.holds import holding
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.links import dashboard_page
from superworkflow.infra.tracking.records import RunRecord, StageRecord


def make_flow(
    superworkflow: Superworkflow,
    *,
    request: Request | None = None,
    tracker: Callable[[Request], Tracker] = lambda request: Tracker(),
    listener: Listener = lambda node, event: None,
    finish: Callable[[RunRecord, Tracker], None] = lambda run, tracker: None,
    run_name: str | None = None,
    launcher: Callable[[Profile], Launcher] = make_launcher,
    prepared: bool = False,
) -> Flow[..., RunRecord]:
    """Wrap a superworkflow as a Prefect flow whose parameters are those of `infra.orchestration.parameters`.

    Args:
        superworkflow: which pipeline.
        request: the validated request, where the caller has it already; built from the flow's parameters otherwise.
        tracker: opens the tracker; called before any stage.
        listener: follows the run.
        finish: last step, after all stages: pictures and the like.
        run_name: name of the flow run and of the tracker's run; Prefect's own choice when None.
        launcher: makes what starts the stages, where the caller wants to hold it.
        prepared: the caller has checked the store and this machine, and prepared the launcher.
    """

    def run(**given: Any) -> Any:
        job = request or request_of(superworkflow, given)
        try:
            enter_flow()
            skip_backlog()
            opened, deployed = tracker(job), deployed_run(job)
            terms = terms_of(job, deployed)
            if deployed is not None:
                unchanged = nothing_new(job, opened, deployed, lambda: behind(job, opened, terms))
                if unchanged is not None:
                    return unchanged
            job = warm(job, opened, terms)
            starter = launcher(job.profile)
            if not prepared:
                _prepare(job, starter)
            return _ended(_execute(job, opened, starter, listener, finish, deployed), deployed)
        except Stopped as error:
            return Cancelled(message=str(error))

    if request is None:
        vars(run)["__signature__"] = flow_signature(superworkflow)
    made = flow(
        name=superworkflow.name, flow_run_name=run_name, description=superworkflow.help,
        validate_parameters=False, persist_result=False,
    )(run)  # fmt: skip
    if request is None:  # a form for people; it takes longer to make than a run of cached stages
        made.parameters = flow_schema(superworkflow)
    return made


def _prepare(request: Request, launcher: Launcher) -> None:
    """Check the store and this machine, and prepare the launcher."""
    request.store.check_writable()
    check_machine(request)
    prepare_launcher(launcher, request)


def _ended(run: RunRecord, deployed: DeployedRun | None) -> RunRecord | State[RunRecord]:
    """Final state of a run whose stages are complete.

    A deployment's run whose model was rejected ends as failed, since production stays behind: it must not be a green
    one among many. There is nothing to resume or repair; its tag says so.
    """
    if not run.decisions:
        return run
    message = "; ".join(map(str, run.decisions))
    if not any(each.verdict == "rejected" for each in run.decisions):
        return Completed(message=message, data=run)
    mark(REJECTED_TAG)
    if deployed is None:
        return Completed(message=message, data=run)
    return Failed(message=message, data=SuperworkflowError(message))  # what Prefect raises, and logs


def _execute(
    request: Request,
    tracker: Tracker,
    launcher: Launcher,
    listener: Listener,
    finish: Callable[[RunRecord, Tracker], None],
    deployed: DeployedRun | None,
) -> RunRecord:
    started = time.monotonic()
    flow_run = current_flow_run()
    flow_run_id = str(flow_run.id)
    run = begin_record(
        request, tracker, flow_run.name, flow_run_id, page(f"runs/flow-run/{flow_run_id}"),
        deployed.tags() if deployed is not None else {},
    )  # fmt: skip
    if url := tracker.url():
        create_link_artifact(key="tracking-run", link=url, link_text="This run in MLflow")

    def run_nodes(nodes: Sequence[Node]) -> None:
        hold.add(used_datasets(nodes))
        _run_stages(nodes, request, launcher, tracker, listener, run)

    with signs_of_life(), holding(request.store.root, flow_run_id) as hold:
        try:
            tracker.sources(run.sources)
            run_nodes(list(request.diagram.nodes.values()))
            name_outputs(request, run, get_run_logger().warning)
            if deployed is not None and not request.superworkflow.registered:
                measure_drift(request, run, tracker.last_datasets(deployed.id), run_nodes)
            run.decisions += register_and_promote(request, run, tracker, terms_of(request, deployed), run_nodes)
            run.close(request.prices, time.monotonic() - started)
            _table_artifact(run, tracker.url())
            finish(run, tracker)
            tracker.finish(run)
            if deployed is not None:
                keep_to_budget(deployed, tracker, run.cost_usd)
        except BaseException as error:
            launcher.cancel()
            run.close(request.prices, time.monotonic() - started)
            _close(tracker, run, error)
            if deployed is not None and isinstance(error, SuperworkflowError):
                keep_to_budget(deployed, tracker, run.cost_usd)
            raise
    return run


def _close(tracker: Tracker, run: RunRecord, error: BaseException) -> None:
    """Close the run's record."""
    if isinstance(error, KeyboardInterrupt):
        ask_once()
    if isinstance(error, TerminationSignal):  # how a worker cancels
        error = Stopped("interrupted by SIGTERM")
    close_record(tracker, run, error, get_run_logger().warning)


def _run_stages(
    nodes: Sequence[Node],
    request: Request,
    launcher: Launcher,
    tracker: Tracker,
    listener: Listener,
    run: RunRecord,
) -> None:
    """Submit every node after those of `nodes` that it needs; `run` gets a record of each, in the end in their order.

    After a failure no further stage starts; those that run already are finished, and their datasets kept.
    """
    futures: dict[str, PrefectFuture[Any]] = {}
    failed: list[BaseException] = []
    # A runner of its own: how many stages may run at once is known only now.
    with ThreadPoolTaskRunner[Any](max_workers=request.profile.concurrency) as runner:
        try:
            for node in nodes:
                stage = _stage_task(node, request, launcher, tracker, listener, run, failed)
                before = [futures[upstream.name] for upstream in node.upstream if upstream.name in futures]
                futures[node.name] = runner.submit(stage, {}, wait_for=before)
            for future in futures.values():
                future.wait()
        except BaseException:
            launcher.cancel()  # before the runner waits for its threads
            raise
    if stopped := next((error for error in failed if isinstance(error, Stopped)), None):
        raise stopped
    for name, future in futures.items():
        if future.state.is_failed() or future.state.is_crashed():
            raise _cause(name, future.state)
    for name, future in futures.items():
        if not future.state.is_completed():
            raise StageFailed(name, f"it did not run: {future.state.message or future.state.name}.")
    order = {node.name: place for place, node in enumerate(nodes)}
    run.stages.sort(key=lambda record: order.get(record.name, -1))  # those of earlier nodes stay before them


def _stage_task(
    node: Node,
    request: Request,
    launcher: Launcher,
    tracker: Tracker,
    listener: Listener,
    run: RunRecord,
    failed: list[BaseException],
) -> Task[[], State[StageRecord]]:
    @task(name=node.name, task_run_name=node.name, description=node.stage.help, cache_policy=NO_CACHE)
    def stage() -> State[StageRecord]:
        if failed:
            return Cancelled(message="not started: another stage failed")
        logger, artifact = get_run_logger(), ProgressArtifact(node.name)

        def seen(event: Event) -> None:
            if event["event"] == "progress":
                if artifact.update(event["done"], event["total"]):
                    logger.info(progress_text(event))
            elif event["event"] == "log":
                logger.info(event["message"])

        try:
            record = follow_node(node, request, launcher, tracker.stage, listener, run, seen)
            artifact.close()
        except BaseException as error:
            failed.append(error)
            if isinstance(error, Stopped):
                return Cancelled(message=str(error))
            raise
        cached = record.state == "cached"
        return Completed(
            name="Cached" if cached else None,
            message=f"{record.rows:,} rows in {record.output}",
            data=record,
        )

    return stage


def _cause(node: str, state: State[Any]) -> BaseException:
    """The exception behind a failed task, as its stage raised it."""
    try:
        result = state.result(raise_on_failure=False)
    except Exception as error:  # the state may hold no result
        result = error
    if isinstance(result, BaseException):
        return result
    return StageFailed(node, state.message or "the task ended without a result")


def _table_artifact(run: RunRecord, url: str | None) -> None:
    """Show the stages and their totals on Prefect's page of the run."""
    rows = [_table_row(record.name, record.state, record.took) | {"rows": record.rows} for record in run.stages]
    rows.append(_table_row("total", "", run.totals()) | {"rows": ""})
    # As code: Prefect's pages make a mail link of `f1@0.5`.
    quality = ", ".join(
        f"`{each.name}` {each}" + (f" ({each.baselines_text})" if each.baselines else "")
        for each in figures(run.metrics, run.declared)
    )
    words = [f"Stages of this run. {quality}", *(str(each) for each in run.decisions)]
    if run.drift:
        words.append("Drift: " + ", ".join(f"`{name}` {text}" for name, text in drift_texts(run.drift)))
    if url:
        words.append(f"This run [in MLflow]({url}) and [on the dashboard]({dashboard_page(run.run_id)}).")
    create_table_artifact(key="stages", table=rows, description="\n\n".join(words))


def _table_row(stage: str, state: str, took: Mapping[str, float]) -> dict[str, Any]:
    return {
        "stage": stage,
        "state": state,
        "runtime (s)": round(took["seconds"], 2),
        "CPU (s)": round(took["cpu_seconds"], 2),
        "compiling (s)": round(took["compile_seconds"], 2),
        "peak memory (MiB)": round(took["peak_memory_bytes"] / 2**20, 1),
        "cost (USD)": round(took["cost_usd"], 6),
        "saved by cache (USD)": round(took["saved_by_cache_usd"], 6),
    }
