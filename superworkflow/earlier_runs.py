"""Runs of earlier processes: their records, and the datasets that are given by the run that made them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.extras import require_extra
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.manifest import METRIC_PREFIX, WARNING_PREFIX
from superworkflow.infra.tracking.records import RunRecord, StageRecord

if TYPE_CHECKING:
    from superworkflow.infra.tracking.run_details import DetailedRun, RecordedStageRun


def find_datasets(superworkflow: Superworkflow, sources: Mapping[str, str], store: str) -> dict[str, str]:
    """Sources, in which each dataset that is given as a run has the address of what that run made.

    A dataset is the output of the stage that also takes it: an earlier `embed` of `embed`.

    Args:
        superworkflow: declares which sources are datasets.
        sources: URI of each by name, of datasets also the id, the beginning of it, or the name of a run.
        store: whose runs.

    Raises:
        UserError: nothing is at the address, and no run is called so, or it has made no such dataset.
    """
    found = dict(sources)
    for name in sorted(superworkflow.datasets & found.keys()):
        if "/" not in found[name] and Dataset.find(found[name]) is None:
            found[name] = _made_by(superworkflow, name, found[name], store)
    return found


def _made_by(superworkflow: Superworkflow, source: str, run: str, store: str) -> str:
    require_extra("flow")
    from superworkflow.infra.tracking.history import find_run
    from superworkflow.infra.tracking.run_reader import RunReader
    from superworkflow.infra.tracking.uris import default_tracking_uri

    uri = default_tracking_uri(store)
    stage = next(stage.name for stage in superworkflow.stages if source in stage.inputs)
    try:
        recorded = find_run(uri, run)
    except UserError as error:
        raise UserError(f"neither a dataset nor a run: {error.what}", where=source, value=run,
                        remedy=f"Give the folder of a dataset of stage {stage}, or a run that `superworkflow runs` "
                        "lists") from None  # fmt: skip
    return RunReader(uri).made(recorded.run_id, stage)


def read_record(run: str, store: str) -> tuple[RunRecord, str]:
    """Record of a run, as far as MLflow keeps it: figures, and addresses of the datasets of its stages; and its page.

    Args:
        run: its id, the beginning of it, or its name.
        store: whose run it is.

    Raises:
        UserError: there is no such run.
    """
    require_extra("flow")
    from superworkflow.infra.tracking.run_reader import RunReader
    from superworkflow.infra.tracking.uris import default_tracking_uri

    reader = RunReader(default_tracking_uri(store))
    found = reader.named(run)
    record = RunRecord(run_id=found.run_id, flow_run_id="", store=store, name=found.name,
                       superworkflow=found.superworkflow, wall_s=found.totals.get("wall_seconds", 0.0),
                       began=found.started.timestamp())  # fmt: skip
    record.stages += [_stage(each, found) for each in reader.stages(found)]
    return record, found.page


def _stage(stage: RecordedStageRun, run: DetailedRun) -> StageRecord:
    begin = f"{stage.name}."
    quality = {name.removeprefix(begin): each for name, each in run.metrics.items() if name.startswith(begin)}
    output = next((each for each in stage.data if each.role == "output"), None)
    return StageRecord(
        name=stage.name, stage=output.name if output else stage.name, digest=stage.digest,
        state=cast("Any", stage.state),
        resources=Resources(cpu=stage.cpu or 1, memory=stage.memory), runtime_s=stage.seconds, cpu_s=stage.cpu_s,
        peak_memory_bytes=int(stage.memory_bytes), cost_usd=stage.cost_usd, saved_s=0.0, saved_usd=stage.saved_usd,
        rows=int(stage.rows), bytes=0, output=output.uri if output else "", error=stage.error,
        compile_s=stage.compile_s, ended=stage.ended.timestamp(), queued_s=stage.queued_s,
        stats={f"{METRIC_PREFIX}{name}": each for name, each in quality.items()}
        | {f"{WARNING_PREFIX}{number}": each for number, each in enumerate(stage.warnings, start=1)},
    )  # fmt: skip
