"""Runs as trackers record them."""

from superworkflow.infra.config.prices import load_prices
from superworkflow.infra.contract.metrics import METRICS_TAG, Metric, metrics_text
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.tracking.mlflow_tracker import MlflowTracker
from superworkflow.infra.tracking.records import RunRecord, StageRecord, Used

METRICS = (Metric("walk-1", "micro_f1", headline=True), Metric("walk-1", "loss", "minimize", uncertainty="loss_std"))


def staged(name: str, seconds: float, *, cached: bool = False) -> StageRecord:
    """Record of a stage that took this long."""
    return StageRecord(
        name=name, stage=name, digest="d" * 32, state="cached" if cached else "ran", resources=Resources(),
        runtime_s=0 if cached else seconds, cpu_s=0 if cached else 2 * seconds, peak_memory_bytes=1 << 20,
        cost_usd=0 if cached else seconds / 100, saved_s=seconds if cached else 0,
        saved_usd=seconds / 100 if cached else 0, rows=40, bytes=1000, output=f"/store/{name}",
        params={"p": 0.5, "labels": None}, inputs=(Used("graph", "c" * 32, "/store/graph"),),
        stats={"vertices": 7, "metrics.micro_f1@0.5": 0.4, "kind": "text"},
    )  # fmt: skip


def recorded(
    uri: str, name: str, params: dict[str, object], stages: list[StageRecord], sources: tuple[Used, ...] = ()
) -> str:
    """The id of a finished run of these stages."""
    tracker = MlflowTracker(uri)
    run_id = tracker.begin(name, "toy", params, {METRICS_TAG: metrics_text(METRICS)})
    run = RunRecord(
        run_id, "flow", "/store", name, "toy", declared=METRICS, sources=sources, page="https://prefect/runs/1"
    )
    tracker.sources(sources)
    for stage in stages:
        tracker.stage(stage)
        run.stages.append(stage)
    run.close(load_prices(), 12.0)
    tracker.finish(run)
    return run_id
