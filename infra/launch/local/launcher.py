"""Stages as processes on this machine."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from superworkflow.infra.base.errors import StagedUserError, StageFailed, SuperworkflowError
from superworkflow.infra.config.usage import held_while_scaled
from superworkflow.infra.contract.progress import output_events
from superworkflow.infra.engines.scaling import requested_count
from superworkflow.infra.launch.base import Attempt, Event, Launched, Launcher, StageCall
from superworkflow.infra.launch.endpoint_calls import EndpointCalls
from superworkflow.infra.launch.local import fork_client
from superworkflow.infra.process.exit_status import Reason, diagnose_exit
from superworkflow.infra.process.shutdown import RELEASE_SECONDS, SAVE_SECONDS
from superworkflow.infra.storage.manifest import Measurement

LOG_TAIL = 20


Child = subprocess.Popen[str] | fork_client.ForkedProcess
"""A stage's process, however it was started."""


class ProcessLauncher(Launcher):
    """Runs `superworkflow stage` in a child process: a fork of a prepared server, or a fresh one.

    The child holds the reading end of a pipe from this process as its standard input and ends when that closes, so
    that it does not outlive a parent that was killed.
    """

    def __init__(self) -> None:
        self._running: set[Child] = set()
        self._guard = threading.Lock()
        self._cancelled = False

    def prepare(self, stages: Sequence[str], store: str = "") -> None:
        """Start the server that imports what these stages need; see `Launcher`."""
        fork_client.prepare(stages, store.partition("://")[0] if "://" in store else "")

    def launch(self, call: StageCall, on_event: Callable[[Event], None]) -> Launched:
        """Run one stage; see `Launcher`."""
        started = time.monotonic()
        child = self._start(call)
        tail: deque[str] = deque(maxlen=LOG_TAIL)
        final: Event | None = None
        scaled: list[tuple[float, str, int]] = []
        calls = EndpointCalls(call.placement.resources.endpoints or {})
        assert child.stdout is not None
        try:
            for event in itertools.chain.from_iterable(output_events(line, call.stage) for line in child.stdout):
                if event["event"] in ("done", "error"):
                    final = event
                    continue
                if event["event"] == "log":
                    tail.append(event["message"])
                if (request := requested_count(event, call.placement.resources.groups)) is not None:
                    scaled.append((time.monotonic() - started, *request))
                calls.take(event)
                on_event(event)
            code = child.wait()
        except SuperworkflowError as error:  # the listener ends it on purpose
            error.attempts = (_attempt(call, started, Reason.CANCELLED, scaled, calls),)
            raise
        finally:
            self._end(child)
        if code == 0 and final is not None and final["event"] == "done":
            measured = Measurement.model_validate(final["measured"])
            attempt = _attempt(call, started, None, scaled, calls)
            attempts = (attempt,) if scaled or calls.holdings(attempt.seconds) else ()
            return Launched(measured, final["reused"], time.monotonic() - started, attempts)
        failure = _failure(call, code, final, list(tail))
        failure.attempts = (_attempt(call, started, diagnose_exit(code).reason, scaled, calls),)
        raise failure

    def cancel(self) -> None:
        """End all children; see `Launcher`."""
        with self._guard:
            self._cancelled = True
            running = list(self._running)
        for child in running:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
        # Compiled code that holds the GIL lets no thread of its process read the signal.
        killer = threading.Timer(SAVE_SECONDS + 2 * RELEASE_SECONDS, self._kill, [running])
        killer.daemon = True
        killer.start()

    def _kill(self, children: Sequence[Child]) -> None:
        with self._guard:
            for child in self._running.intersection(children):
                child.kill()

    def _start(self, call: StageCall) -> Child:
        resources = call.placement.resources
        arguments = [*call.arguments(resources), "--end-with-stdin"]
        threads = str(resources.threads)
        environment = os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PYTHONUNBUFFERED": "1"}
        with self._guard:
            if self._cancelled:
                raise StageFailed(call.node, "the run was cancelled before the stage began.")
            server = None if resources.gpu.count else fork_client.shared()  # their drivers want a process of their own
            child: Child | None = server.start(arguments, environment) if server else None
            if child is None:
                child = subprocess.Popen(
                    [*fork_client.PROGRAM, *arguments], text=True, errors="replace", bufsize=1,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
                    start_new_session=True,  # what a terminal sends is for the launcher
                )  # fmt: skip
            self._running.add(child)
        return child

    def _end(self, child: Child) -> None:
        if child.poll() is None:
            child.kill()
            child.wait()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                stream.close()
        with self._guard:
            self._running.discard(child)


def _attempt(
    call: StageCall, started: float, reason: Reason | None, scaled: Sequence[tuple[float, str, int]],
    calls: EndpointCalls,
) -> Attempt:  # fmt: skip
    resources, seconds = call.placement.resources, time.monotonic() - started
    holdings = (*held_while_scaled(resources, seconds, scaled), *calls.holdings(seconds))
    return Attempt(resources, seconds, reason, holdings=holdings)


def _failure(call: StageCall, code: int, final: Event | None, tail: list[str]) -> SuperworkflowError:
    if final is not None and final["event"] == "error":
        if final.get("user"):
            return StagedUserError(final["message"])
        return StageFailed(call.node, final["message"], "See its log above.", code)
    diagnosis = diagnose_exit(code)
    summary = diagnosis.summary + (f"; its last output: {tail[-1]}" if tail else "")
    return StageFailed(call.node, summary + ".", diagnosis.resolution, code)
