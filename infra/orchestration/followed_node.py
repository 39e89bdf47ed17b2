"""One node of a run, followed and recorded, whatever orchestrates the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from superworkflow.infra.base.errors import SuperworkflowError
from superworkflow.infra.base.masking import masked
from superworkflow.infra.config.request import Request
from superworkflow.infra.contract.diagram import Node
from superworkflow.infra.contract.progress import Course, LogLines
from superworkflow.infra.launch.base import Event, Launcher
from superworkflow.infra.orchestration.run_node import run_node
from superworkflow.infra.tracking.records import RunRecord, StageRecord

Listener = Callable[[str, Event], None]
"""Receives `(node name, event)`: `begin`, the stage's own events, and `end` or `failed` with the stage's record."""


def follow_node(
    node: Node,
    request: Request,
    launcher: Launcher,
    keep: Callable[[StageRecord], None],
    listener: Listener,
    run: RunRecord,
    seen: Callable[[Event], None] = lambda event: None,
) -> StageRecord:
    """Make sure that a node's dataset exists, and keep its record, also where it fails.

    Args:
        node: see `run_node`, as `request` and `launcher`.
        keep: receives its record, such as `Tracker.stage`.
        listener: follows it.
        run: gets its record.
        seen: receives its events as well; those of logs are masked.

    Raises:
        StageFailed, UserError: see `run_node`.
    """
    course, lines = Course(), LogLines()

    def on_event(event: Event) -> None:
        if event["event"] == "log":
            event = {**event, "message": masked(str(event["message"]))}
            lines.add(event["message"])
        listener(node.name, event)
        if node.stage.steps is not None:
            course.add(event)
        seen(event)

    listener(node.name, {"event": "begin"})
    try:
        record = run_node(node, request, launcher, on_event, {"flow-run": run.flow_run_id} if run.flow_run_id else {})
        record = replace(record, course=course.points, log=lines.kept)
        run.stages.append(record)
        keep(record)
    except SuperworkflowError as error:
        if error.record is not None:
            error.record = replace(error.record, log=(*lines.kept, masked(str(error))))
            run.stages.append(error.record)
            listener(node.name, {"event": "failed", "record": error.record})
            keep(error.record)
        raise
    listener(node.name, {"event": "end", "record": record})
    return record
