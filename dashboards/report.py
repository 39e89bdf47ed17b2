"""Pictures, panels and the report of one run, attached to its record."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.contract.outcomes import Outcome, Picture
from superworkflow.infra.contract.panel import Panel, Part, panel_document
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.location import Location
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.records import RunRecord

_log = logging.getLogger(__name__)


def attach_pictures(run: RunRecord, tracker: Tracker, outcomes: Sequence[Outcome]) -> None:
    """Draw runtime and cost of stages that have run, the declared pictures and panels; write the report.

    If a declared picture or panel or the report fails, a warning is logged: the run already has all its results.
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
        for picture in outcomes:
            if not isinstance(picture, Picture) or picture.node not in outputs:
                continue
            path = Path(folder) / f"{picture.node}-{picture.name}.png"
            try:
                with closing(Dataset.open(Location.of(outputs[picture.node]))) as dataset:
                    imported(picture.function)(dataset, path)
            except Exception as error:
                _log.warning("%s drew no picture of %s: %s: %s", picture.function, picture.node,
                             type(error).__name__, error)  # fmt: skip
                continue
            if path.exists():
                tracker.picture(path)
        made = [document for each in outcomes
                if isinstance(each, Panel) and (document := _panel(each, outputs)) is not None]  # fmt: skip
        tracker.panels(made)
        _attach_report(run, tracker, Path(folder), made)


def _panel(panel: Panel, outputs: Mapping[str, str]) -> dict[str, Any] | None:
    """Document of a panel; None if there is none of these datasets."""
    if panel.node not in outputs:
        return None
    try:
        with ExitStack() as opened:
            datasets = {
                node: opened.enter_context(closing(Dataset.open(Location.of(outputs[node]))))
                for node in (panel.node, *panel.others) if node in outputs
            }  # fmt: skip
            parts: Part | Sequence[Part] | None = imported(panel.function)(datasets)
            parts = [parts] if isinstance(parts, Part) else parts
            document = panel_document(panel, parts) if parts else None
        json.dumps(document, allow_nan=False)
    except Exception as error:
        _log.warning("%s made no panel of %s: %s: %s", panel.function, panel.node, type(error).__name__, error)
        return None
    return document


def _attach_report(run: RunRecord, tracker: Tracker, folder: Path, panels: Sequence[Mapping[str, Any]]) -> None:
    """The dashboard's page of the run, in one file."""
    from superworkflow.dashboards.web.report import RUN_REPORT, write_run_report
    from superworkflow.infra.tracking.run_reader import as_detailed, as_stage

    try:
        stages = [as_stage(record) for record in run.stages]
        detailed = as_detailed(run, tracker.url() or "")
        write_run_report(detailed, stages, folder / RUN_REPORT, run.page, panels)
    except Exception as error:
        _log.warning("the report of this run could not be written: %s: %s", type(error).__name__, error)
        return
    tracker.report(folder / RUN_REPORT)
