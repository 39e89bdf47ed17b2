"""Pictures, panels and the report of one run, attached to its record."""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from superworkflow.infra.base.import_strings import imported, module_file
from superworkflow.infra.contract.outcomes import Outcome, Picture
from superworkflow.infra.contract.panel import FORMAT, Panel, Part, panel_document
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.records import RunRecord, StageRecord
from superworkflow.infra.tracking.tags import PANELS, read_mapping

_log = logging.getLogger(__name__)


Drawing = Picture | Panel


def attach_pictures(run: RunRecord, tracker: Tracker, outcomes: Sequence[Outcome]) -> None:
    """Draw runtime and cost of stages that have run, the declared pictures and panels; write the report.

    What an earlier run has drawn of the same datasets, all of them cached, is attached once more instead. If a declared
    picture or panel or the report fails, a warning is logged: the run already has all its results.
    """
    if type(tracker) is Tracker:
        return  # nothing keeps the pictures
    stages = {record.name: record for record in run.stages}
    declared = [each for each in outcomes if isinstance(each, Picture | Panel) and each.node in stages]
    keys = {_place(each): _key(each, stages) for each in declared}
    same = [each for each in declared if all(stages[name].state == "cached" for name in _nodes(each, stages))]
    earlier = tracker.drawn({_place(each): keys[_place(each)] for each in same}) if same else {}
    attached, panels = dict[str, str](), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory(prefix="superworkflow-pictures-") as folder:
        if any(record.state != "cached" for record in run.stages):
            from superworkflow.dashboards.pictures import cost_picture

            cost = Path(folder) / "stages.png"
            cost_picture(run.stages, cost)
            tracker.picture(cost)
        for each in declared:
            place = _place(each)
            if isinstance(each, Panel):
                document = _read(earlier.get(place)) or _panel(each, stages)
                panels += [document] if document is not None else []
                done = document is not None
            else:
                path = Path(folder) / Path(place).name
                if place in earlier:
                    path.write_bytes(earlier[place])
                else:
                    _draw(each, stages, path)
                if done := path.exists():
                    tracker.picture(path)
            attached |= {place: keys[place]} if done else {}
        tracker.panels(panels)
        tracker.drew(attached)
        _attach_report(run, tracker, Path(folder), panels)


def _place(drawing: Drawing) -> str:
    """Path among a run's artifacts."""
    if isinstance(drawing, Panel):
        return f"{PANELS}/{drawing.name}.json"
    return f"pictures/{drawing.node}-{drawing.name}.png"


def _nodes(drawing: Drawing, stages: Mapping[str, StageRecord]) -> list[str]:
    """Nodes whose datasets it shows."""
    others = drawing.others if isinstance(drawing, Panel) else ()
    return [name for name in (drawing.node, *others) if name in stages]


def _key(drawing: Drawing, stages: Mapping[str, StageRecord]) -> str:
    """Digest of all that decides how it looks: its definition, the text of its function's module, and its datasets."""
    file = module_file(drawing.function.partition(":")[0])
    text = hashlib.sha256(file.read_bytes()).hexdigest() if file is not None else ""
    datasets = {name: stages[name].digest for name in _nodes(drawing, stages)}
    rest = [FORMAT, drawing.function, drawing.name, getattr(drawing, "title", ""), text, datasets]
    return hashlib.sha256(json.dumps(rest).encode()).hexdigest()[:32]


def _read(text: bytes | None) -> dict[str, Any] | None:
    """The document of a panel in a file that anyone may have written; None where there is none."""
    found = read_mapping(text or b"")
    return found if isinstance(found.get("parts"), list) else None


def _draw(picture: Picture, stages: Mapping[str, StageRecord], path: Path) -> None:
    """Draw a picture, or nothing where there is none to draw."""
    try:
        with closing(Dataset.open(stages[picture.node].output)) as dataset:
            imported(picture.function)(dataset, path)
    except Exception as error:
        _log.warning("%s drew no picture of %s: %s: %s", picture.function, picture.node, type(error).__name__, error)
        path.unlink(missing_ok=True)


def _panel(panel: Panel, stages: Mapping[str, StageRecord]) -> dict[str, Any] | None:
    """Document of a panel; None where there is nothing to show."""
    try:
        with ExitStack() as opened:
            datasets = {
                node: opened.enter_context(closing(Dataset.open(stages[node].output))) for node in _nodes(panel, stages)
            }
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
    from superworkflow.infra.tracking.run_details import as_detailed, as_stage

    try:
        stages = [as_stage(record) for record in run.stages]
        detailed = as_detailed(run, tracker.url() or "")
        write_run_report(detailed, stages, folder / RUN_REPORT, run.page, panels)
    except Exception as error:
        _log.warning("the report of this run could not be written: %s: %s", type(error).__name__, error)
        return
    tracker.report(folder / RUN_REPORT)
