"""Index of all runs for pages: the newest are read at once, older ones in the background, later only what changes.

Reading a run from MLflow takes milliseconds, and its search returns all of its figures; ten thousand runs take minutes.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from superworkflow.infra.tracking.run_details import DetailedRun
from superworkflow.infra.tracking.run_reader import RunReader

_log = logging.getLogger(__name__)

RUNS = 20_000
"""Latest runs that pages show."""
FIRST, PAGE = 50, 200
"""Runs that the first page waits for, and runs of one search in the background."""
LATEST = 20
"""Runs of one search for those that have ended; a search that finds only known ones is the last."""
PAUSE = 1.0
"""Pause after a search in the background, by the time that the search took: pages come first."""
FRESH_SECONDS = 5.0
"""Lifetime of what pages have read."""
WHOLE_SECONDS = 900.0
"""Time after which all runs are read again: some may have been removed, or have got tags."""
OVERLAP = timedelta(minutes=10)
"""Clocks of those who start runs may differ by this."""


class RunIndex:
    """Runs, newest first.

    Args:
        reader: of the records.
    """

    def __init__(self, reader: RunReader):
        self._reader, self._turn = reader, threading.Lock()
        self._by_id: dict[str, DetailedRun] = {}
        self._sorted: list[DetailedRun] = []
        self._read = float("-inf")
        self._whole = float("-inf")
        self._scan: threading.Thread | None = None
        self._begun = datetime.now(UTC)
        self.complete = True

    def __call__(self) -> list[DetailedRun]:
        """The runs that have been read, with those that are new or were still running."""
        with self._turn:
            now = time.monotonic()
            if now - self._read > FRESH_SECONDS:
                self._refresh()
                self._read = time.monotonic()
                if now - self._whole > WHOLE_SECONDS and (self._scan is None or not self._scan.is_alive()):
                    self._whole = now
                    self._scan = threading.Thread(target=self._scan_all, name="run-index", daemon=True)
                    self._scan.start()
            return self._sorted

    def _refresh(self) -> None:
        """Read what changes: runs that are running, those that have ended since, and those that were running.

        However many runs began or ended lately, only a page of known ones is read again. One that ended unseen, by a
        clock that is behind that page, is seen by the next scan.
        """
        if not self._by_id:
            self._begun = datetime.now(UTC)
            found = self._reader.runs(FIRST)
            self.complete = len(found) < FIRST
            self._put({run.run_id: run for run in found})
            return
        ends = [run.ended for run in self._sorted if run.ended is not None]
        since = max(ends) - OVERLAP if self.complete and ends else self._begun  # the scan reads the earlier ones
        fresh = self._pages(PAGE, running=True) | self._pages(LATEST, ended_since=since)
        for run in self._sorted:
            if run.status == "RUNNING" and run.run_id not in fresh:
                now = self._reader.run(run.run_id)
                if now is None:
                    del self._by_id[run.run_id]
                else:
                    fresh[run.run_id] = now
        self._put(fresh)

    def _pages(self, size: int, **which: Any) -> dict[str, DetailedRun]:
        """Runs that pass, up to a page of runs whose end is known; see `RunReader.page`."""
        fresh: dict[str, DetailedRun] = {}
        token = None
        while len(fresh) < RUNS:
            found, token = self._reader.page(size, token, **which)
            fresh |= {run.run_id: run for run in found}
            if token is None or all(self._has_ended(run.run_id) for run in found):
                break
        return fresh

    def _has_ended(self, run_id: str) -> bool:
        return run_id in self._by_id and self._by_id[run_id].ended is not None

    def _scan_all(self) -> None:
        """Read all runs, page by page, and forget those that are gone."""
        begun, seen, started = datetime.now(UTC), set[str](), time.monotonic()
        try:
            for found in self._reader.pages(PAGE):
                taken = time.monotonic() - started
                seen |= {run.run_id for run in found}
                with self._turn:
                    self._put({run.run_id: run for run in found})
                if len(seen) >= RUNS:
                    break
                time.sleep(PAUSE * taken)
                started = time.monotonic()
        except Exception as error:  # a server that is down for a while: the next scan will read them
            _log.warning("older runs cannot be read: %s", error)
            return
        with self._turn:
            for run_id in [each for each, run in self._by_id.items() if each not in seen and run.started < begun]:
                if self._reader.run(run_id) is None:
                    del self._by_id[run_id]
            self._put({})
            self.complete = True

    def _put(self, runs: dict[str, DetailedRun]) -> None:
        self._sorted = sorted((self._by_id | runs).values(), key=lambda run: run.started, reverse=True)[:RUNS]
        self._by_id = {run.run_id: run for run in self._sorted}
