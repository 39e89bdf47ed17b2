"""Progress and facts of a running stage, as lines that a person reads or events that a launcher parses."""

from __future__ import annotations

import json
import math
import sys
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import IO, Any

EVENT_PREFIX = "@superworkflow "
"""Starts a line that holds one JSON event; all other lines of a stage's output are its log."""

INTERVAL_SECONDS = 0.5
MOST_POINTS = 500
"""Most points kept of one figure of a stage's progress."""
FIRST_LINES, LAST_LINES = 200, 800
"""Lines kept of a stage's log."""


class Progress:
    """Reports of one stage.

    Args:
        stage: name shown in front of each line.
        events: write JSON events instead of lines for people.
        stream: where to; standard error by default.
    """

    def __init__(self, stage: str, *, events: bool = False, stream: IO[str] | None = None):
        self.stage, self.events = stage, events
        self.stream = stream if stream is not None else sys.stderr
        self._last = 0.0
        self._started = time.monotonic()

    def update(self, done: float, total: float, unit: str, **facts: float | int | str) -> None:
        """Report how far the work is, at most twice a second; the last report is always sent.

        Args:
            done: units finished.
            total: units in all; 0 where nobody knows, as of steps until nothing changes.
            unit: what is counted, in the plural, such as `rows`.
            facts: further figures, such as `loss=0.41` or `tokens_per_s=2.1e6`.
        """
        now = time.monotonic()
        if now - self._last < INTERVAL_SECONDS and (done < total or (done and not total)):
            return
        self._last = now
        self.emit("progress", done=done, total=total, unit=unit, facts=facts)

    def report(self, step: int, steps: int, value: float, **facts: float) -> None:
        """Report an intermediate value by which a sweep may stop the work early. `Stage.steps` says how many.

        Args:
            step: how many parts of the work are done, from 1.
            steps: parts in all.
            value: larger is better; comparable between runs with other parameters.
            facts: figures of this part, such as its mean loss; none is left out of the record, as `update` may do.
        """
        self.emit("report", step=step, steps=steps, value=value, facts=facts)

    def log(self, message: str) -> None:
        """Log a message."""
        self.emit("log", message=message)

    def emit(self, event: str, **fields: Any) -> None:
        """Write one event; `log` and `progress` are also shown to people."""
        if self.events:
            line = EVENT_PREFIX + json.dumps({"event": event, "stage": self.stage, **fields})
        elif event == "progress":
            line = f"{self.stage:<10} {progress_text(fields)}"
        elif event == "log":
            line = f"{self.stage:<10} {fields['message']}"
        else:
            return
        self.stream.write(line + "\n")  # in one piece: other threads write as well
        self.stream.flush()


class Course:
    """Figures that a stage reports while it works, such as its loss, by step: for charts.

    Those of a part of the work (`Progress.report`) are by the number of the part, and take the place of others of their
    name.
    Above `MOST_POINTS` every second point is dropped, so that the rest covers the whole course.
    """

    def __init__(self) -> None:
        self._points: dict[str, dict[int, float]] = {}
        self._by_part: set[str] = set()

    def add(self, event: Mapping[str, Any]) -> None:
        """Take the figures of an event, except rates by second, which depend on the machine."""
        is_part = event["event"] == "report"
        if event["event"] != "progress" and not is_part:
            return
        for name, value in event.get("facts", {}).items():
            if isinstance(value, int | float) and math.isfinite(value) and not name.endswith("_per_s"):
                if is_part and name not in self._by_part:
                    self._by_part.add(name)
                    self._points[name] = {}
                if not is_part and name in self._by_part:
                    continue
                points = self._points.setdefault(name, {})
                points[int(event["step" if is_part else "done"])] = float(value)
                if len(points) > MOST_POINTS:
                    for step in sorted(points)[1:-1:2]:
                        del points[step]

    @property
    def points(self) -> dict[str, tuple[tuple[int, float], ...]]:
        """`(step, value)` by name, in order; a step is what the stage counts as done."""
        return {name: tuple(sorted(points.items())) for name, points in self._points.items()}


class LogLines:
    """Lines of a stage's log with their times (UTC); of a long log the first and the last ones."""

    def __init__(self) -> None:
        self._first: list[str] = []
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._all = 0

    def add(self, message: str) -> None:
        """Take a line, cut after 2,000 characters."""
        line = f"{datetime.now(UTC):%H:%M:%S}  {message[:2000]}"
        self._all += 1
        if len(self._first) < FIRST_LINES:
            self._first.append(line)
        else:
            self._last.append(line)

    @property
    def kept(self) -> tuple[str, ...]:
        missing = self._all - len(self._first) - len(self._last)
        gap = [f"… {missing:,} lines …"] if missing else []
        return (*self._first, *gap, *self._last)


def progress_text(fields: dict[str, Any]) -> str:
    """One progress event for people: `42%  4.2M/10M rows  loss 0.41`."""
    done, total = fields["done"], fields["total"]
    share = 100 * done / total if total else 100
    facts = "  ".join(
        f"{name.removesuffix('_per_s')} {_short(value)}{'/s' if name.endswith('_per_s') else ''}"
        for name, value in fields["facts"].items()
    )
    so_far = f"{_short(done)}" if done and not total else f"{share:3.0f}%  {_short(done)}/{_short(total)}"
    return f"{so_far} {fields['unit']}  {facts}".rstrip()


def parse_event(line: str) -> dict[str, Any] | None:
    """The event on a line of a stage's output, or None when the line is plain log."""
    if not line.startswith(EVENT_PREFIX):
        return None
    try:
        event = json.loads(line.removeprefix(EVENT_PREFIX))
    except json.JSONDecodeError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def output_events(line: str, stage: str) -> list[dict[str, Any]]:
    """Events of a line of a stage's output: its text as a `log`, and an event that came before the line ended."""
    line = line.rstrip("\n")
    if (event := parse_event(line)) is not None:
        return [event]
    text, mark, rest = line.partition(EVENT_PREFIX)
    event = parse_event(mark + rest)
    log = {"event": "log", "stage": stage, "message": line if event is None else text}
    return [log] if event is None else [log, event]


def _short(value: Any) -> str:
    if not isinstance(value, int | float):
        return str(value)
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / {'G': 1e9, 'M': 1e6, 'k': 1e3}[suffix]:.3g}{suffix}"
    return f"{value:.4g}"
