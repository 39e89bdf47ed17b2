"""A run in the background: its progress as a table, to be cancelled or waited for."""

from __future__ import annotations

import html
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from superworkflow.frames import by_name
from superworkflow.infra.base.errors import SuperworkflowError, UserError, unwritable
from superworkflow.infra.config.request import Request
from superworkflow.infra.launch.base import Event
from superworkflow.results import Run, frame

if TYPE_CHECKING:
    import pandas as pd

    from superworkflow.execution import Execution

_BETWEEN_S = 0.5
"""Least seconds between two drawings of a run's progress."""
KEPT = "Complete stages are kept: the same call resumes from there."


class RunHandle:
    """One run.

    Args:
        request: of the run.
        prepare: makes its execution, with a listener.

    Raises:
        UserError: what cannot run here.
    """

    def __init__(self, request: Request, prepare: Callable[..., Execution]):
        self._request = request
        self._stages: dict[str, dict[str, Any]] = {name: {"state": "waits"} for name in request.diagram.nodes}
        self._shown: Any = None
        self._drawn = 0.0
        self._execution = prepare(listener=self._follow, printed=not in_notebook())
        self._thread: threading.Thread | None = None
        self._run: Run | None = None
        self._error: BaseException | None = None

    def here(self) -> Run:
        """Run in this thread; raises as `superworkflow.run`. A notebook shows the progress."""
        if self._thread is None and in_notebook():
            self._ipython_display_()
        try:
            record = self._execution.run(KEPT)
        except SuperworkflowError as error:
            if isinstance(error, UserError):
                uris = {name: source.uri for name, source in self._request.sources.items()}
                error.args = (by_name(str(error), uris),)
            else:
                error.add_note(KEPT)
            raise
        except KeyboardInterrupt as interruption:
            interruption.add_note(KEPT)
            raise
        except Exception as error:
            if (reason := unwritable(error)) is None:
                raise
            raise reason from error
        return Run(self._request.superworkflow, record, self._execution.tracker.url())

    def start(self) -> RunHandle:
        """Run in a thread of its own, which ends with the process."""
        self._thread = threading.Thread(target=self._body, name="superworkflow-run", daemon=True)
        self._thread.start()
        return self

    @property
    def done(self) -> bool:
        """True once it has ended, well or not."""
        return self._thread is not None and not self._thread.is_alive()

    @property
    def progress(self) -> pd.DataFrame:
        """State of each stage, its share of 1 that is done where the stage reports it, and its last message."""
        return frame(
            [{"state": each["state"], "done": each.get("done"), "message": each.get("message", "")}
             for each in list(self._stages.values())],
            index=list(self._stages),
        )  # fmt: skip

    def cancel(self) -> None:
        """End the running stages; complete ones are kept, and `result` raises `Stopped`."""
        self._execution.cancel()

    def result(self, timeout: float | None = None) -> Run:
        """Wait for the end. Interrupting it, as a notebook's stop button does, cancels the run.

        Args:
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: it has not ended in this time, and continues.
            SuperworkflowError: as `superworkflow.run`.
        """
        assert self._thread is not None
        try:
            self._thread.join(timeout)
        except KeyboardInterrupt:
            self.cancel()
            self._thread.join()
            raise
        if self._thread.is_alive():
            raise TimeoutError(f"the run has not ended within {timeout:g} s")
        if self._run is None:
            assert self._error is not None
            raise self._error
        return self._run

    def _body(self) -> None:
        try:
            self._run = self.here()
        except BaseException as error:
            self._error = error

    def _follow(self, node: str, event: Event) -> None:
        stage = self._stages.setdefault(node, {"state": "waits"})
        kind = event["event"]
        if kind == "begin":
            stage["state"] = "runs"
        elif kind == "progress" and event["total"]:
            stage["done"] = event["done"] / event["total"]
        elif kind == "log":
            stage["message"] = event["message"]
        elif kind == "failed":
            stage["state"] = "failed"
        elif kind == "end":
            stage |= {"state": event["record"].state, "done": 1.0}
        now = time.monotonic()
        if self._shown is not None and (kind in ("begin", "failed", "end") or now - self._drawn >= _BETWEEN_S):
            self._drawn = now
            self._shown.update(self._pictures(), raw=True)

    def _ipython_display_(self) -> None:
        """Show the progress; a notebook draws it again in the same place."""
        from IPython.display import display

        shown = display(self._pictures(), raw=True, display_id=True)
        self._shown = shown if in_notebook() else None  # a terminal would print it again below

    def _pictures(self) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _repr_html_(self) -> str:
        return f"<p><b>{html.escape(self._request.superworkflow.name)}</b></p>{self.progress._repr_html_()}"

    def __repr__(self) -> str:
        return f"{self._request.superworkflow.name}\n{self.progress.to_string()}"


def in_notebook() -> bool:
    """True in a kernel of Jupyter, whose pages can draw an output again; elsewhere progress is lines of text."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
