"""Begin and end of a run's record, whatever orchestrates the run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

from superworkflow.infra.base.errors import Stopped
from superworkflow.infra.config.request import Request
from superworkflow.infra.contract.code_file import INPUT
from superworkflow.infra.contract.metrics import METRICS_TAG, metrics_text
from superworkflow.infra.orchestration.comparison_nodes import dataset_digests
from superworkflow.infra.orchestration.export import output_uri
from superworkflow.infra.orchestration.run_node import used_sources
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.records import RunRecord
from superworkflow.infra.tracking.tags import CHANGED_TAG, DATASETS_TAG, STORE_TAG


def begin_record(
    request: Request, tracker: Tracker, name: str, flow_run_id: str = "", page: str = "", more: Mapping[str, str] = {}
) -> RunRecord:
    """Open the record of a run.

    Args:
        request: of the run.
        tracker: that keeps it.
        name: of the run.
        flow_run_id: of Prefect's flow run; empty where there is none.
        page: address of that on Prefect's server.
        more: further tags.
    """
    began = time.time()
    tags = {
        f"superworkflow.source.{key}": request.origins.get(key, source.uri) for key, source in request.sources.items()
    }
    if (code := request.superworkflow.code) is not None:
        tags[f"superworkflow.source.{INPUT}"] = f"{code.uri} (SHA-256 {code.sha256})"
    tags |= {"superworkflow.profile": request.profile.name, "superworkflow.prices": request.prices.name}
    tags |= {"superworkflow.flow_run_id": flow_run_id, STORE_TAG: request.store.uri, **more}
    if compared := dataset_digests(request):
        tags[DATASETS_TAG] = json.dumps(compared)
    tags[CHANGED_TAG] = json.dumps(request.changed_params())
    declared = request.superworkflow.metrics
    tags[METRICS_TAG] = metrics_text(declared)
    run_id = tracker.begin(name, request.superworkflow.name, request.flat_params(), tags)
    return RunRecord(
        run_id, flow_run_id, request.store.uri, name, request.superworkflow.name, declared=declared,
        sources=used_sources(request), page=page, began=began,
    )  # fmt: skip


def name_outputs(request: Request, run: RunRecord, warn: Callable[[str], None]) -> None:
    """Name the files that people look for; `warn` receives a sentence for each that a dataset lacks."""
    by_name = {record.name: record for record in run.stages}
    for title in request.superworkflow.outputs:
        # a trial of a sweep runs no more than its objective needs
        if (made := request.superworkflow.output(title, by_name)) is not None:
            node, name = made
            uri = output_uri(Dataset.open(by_name[node].output), name)
            if uri is None:
                warn(f"the dataset of {node} has no {name}, which is to be its output")
            else:
                run.outputs[title] = uri


def close_record(tracker: Tracker, run: RunRecord, error: BaseException, warn: Callable[[str], None]) -> None:
    """Close the record of a run that an error ends; errors of this go to `warn`: they must not hide that one."""
    try:
        if isinstance(error, Stopped | KeyboardInterrupt):
            tracker.stop(str(error) or "interrupted", run)
        else:
            tracker.fail(str(error) or type(error).__name__, run)
    except Exception as fault:
        warn(f"the record of this run could not be closed: {fault}")
