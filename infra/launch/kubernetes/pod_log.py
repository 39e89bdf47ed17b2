"""The log of a pod, line by line, each once, however often the connection breaks."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

import aiohttp

from superworkflow.infra.launch.kubernetes.api import ApiError, KubernetesApi
from superworkflow.infra.launch.kubernetes.pod_status import CONTAINER

_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d) ?")


class LogCursor:
    """Position up to which a log with timestamps has been read.

    A stream that is opened again starts a second before the last line; lines that were read are passed over. Stamps of
    standard output and standard error may be out of order, by the time that it takes to write a line to the log.
    """

    def __init__(self) -> None:
        self.since: str | None = None
        self._latest = ""  # second of the last line
        self._read: Counter[str] = Counter()  # lines that a stream opened now may show again
        self._again: Counter[str] = Counter()  # of these, what this stream has not shown yet
        self._opened_at = ""

    def reopen(self) -> None:
        """The next line comes from a stream that was opened anew."""
        self._again, self._opened_at = self._read.copy(), self.since or ""

    def feed(self, line: str) -> str | None:
        """The line without its timestamp, or None when it was read before."""
        match = _STAMP.match(line)
        if match is None:
            return None  # the server's own words about the log
        # Of one log the zone does not change, so that text in the order of time is enough.
        if match[1] < self._opened_at[: len(match[1])]:
            return None
        if self._again[line] > 0:
            self._again[line] -= 1
            return None
        if match[1] > self._latest:
            self._latest = match[1]
            begin = (datetime.fromisoformat(match[1]) - timedelta(seconds=1)).isoformat()
            self.since = begin + match[2]
            self._read = Counter({each: count for each, count in self._read.items() if each[: len(begin)] >= begin})
        self._read[line] += 1
        return line[match.end() :]


_PAUSE_S = 0.5
"""Seconds between two connections."""


async def read_log(api: KubernetesApi, pod: str, log: Callable[[str], None], ended: asyncio.Event) -> None:
    """Pass on each line of the stage's container until it has ended and all was read.

    Args:
        api: the cluster.
        pod: name of the pod.
        log: receives each line.
        ended: set by the caller when the container is known to have ended, or the pod to be gone.
    """
    cursor = LogCursor()
    while True:
        last = ended.is_set()  # what is opened after the end and closes well has shown all
        query = {"container": CONTAINER, "follow": "true", "timestamps": "true"}
        if cursor.since is not None:
            query["sinceTime"] = cursor.since
        cursor.reopen()
        try:
            async for line in api.lines(f"{api.pods}/{pod}/log", **query):
                text = cursor.feed(line)
                if text is not None:
                    log(text)
            if last:
                return
        except ApiError as error:
            if error.status == 404 and last:
                return
        except (aiohttp.ClientError, TimeoutError, OSError):
            pass
        if not ended.is_set():
            await asyncio.sleep(_PAUSE_S)
        elif last:
            await asyncio.sleep(_PAUSE_S)  # it was not shown to its end; the caller limits how long this may take
