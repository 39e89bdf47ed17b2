"""Pictures and the report of one run, attached to its record."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.contract.outcomes import Picture
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.location import Location
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.records import RunRecord

_log = logging.getLogger(__name__)


def attach_pictures(run: RunRecord, tracker: Tracker, pictures: Sequence[Picture]) -> None:
    """Draw runtime and cost of stages that have run, and what the superworkflow declares; write the report.

    If a declared picture or the report fails, a warning is logged: the run already has all its results.
    """
    if type(tracker) is Tracker:
        return  # nothing keeps the pictures
    from superworkflow.dashboards.pictures import cost_picture

    outputs = {record.name: record.output for record in run.stages}
    with tempfile.TemporaryDirectory(prefix="superworkflow-pictures-") as folder:
        if any(record.state != "cached" for record in run.stages):
            cost = Path(folder) / "stages.png"
            cost_picture(run.stages, cost)
            tracker.picture(cost)
        for picture in pictures:
            path = Path(folder) / f"{picture.node}-{picture.name}.png"
            if picture.node not in outputs:
                continue
            try:
                with closing(Dataset.open(Location.of(outputs[picture.node]))) as dataset:
                    imported(picture.function)(dataset, path)
            except Exception as error:
                _log.warning("%s drew no picture of %s: %s: %s", picture.function, picture.node,
                             type(error).__name__, error)  # fmt: skip
                continue
            if path.exists():
                tracker.picture(path)
        _attach_report(run, tracker, Path(folder))


def _attach_report(run: RunRecord, tracker: Tracker, folder: Path) -> None:
    """The dashboard's page of the run, in one file."""
    from superworkflow.dashboards.web.report import RUN_REPORT, write_run_report
    from superworkflow.infra.tracking.run_reader import as_detailed, as_stage

    try:
        stages = [as_stage(record) for record in run.stages]
        write_run_report(as_detailed(run, tracker.url() or ""), stages, folder / RUN_REPORT, run.page)
    except Exception as error:
        _log.warning("the report of this run could not be written: %s: %s", type(error).__name__, error)
        return
    tracker.report(folder / RUN_REPORT)
