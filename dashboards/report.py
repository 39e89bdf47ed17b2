"""Pictures of one run, drawn and attached to its record."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from superworkflow.infra.import_strings import imported
from superworkflow.infra.outcomes import Picture
from superworkflow.infra.records import RunRecord
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.filesystem import Location
from superworkflow.infra.tracking.base import Tracker

_log = logging.getLogger(__name__)


def attach_pictures(run: RunRecord, tracker: Tracker, pictures: Sequence[Picture]) -> None:
    """Draw cost and runtime per stage, and the pictures that the superworkflow declares of its nodes.

    A declared picture that cannot be drawn is a warning: the run has all its results by then.
    """
    if type(tracker) is Tracker:
        return  # nothing keeps the pictures
    from superworkflow.dashboards.pictures import cost_picture

    outputs = {record.name: record.output for record in run.stages}
    with tempfile.TemporaryDirectory(prefix="superworkflow-pictures-") as folder:
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
