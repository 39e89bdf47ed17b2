"""One run of a request by this process: what `superworkflow run` and `superworkflow.run()` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from superworkflow.dashboards.terminal import RunDisplay
from superworkflow.infra.base.errors import Stopped, SuperworkflowError
from superworkflow.infra.config.request import Request, check_machine
from superworkflow.infra.launch import make_launcher, prepare_launcher
from superworkflow.infra.launch.base import Attempt, Event, Launched, Launcher, StageCall
from superworkflow.infra.orchestration.export import check_formats, export_all
from superworkflow.infra.process.interrupt import interruptible
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.records import RunRecord

CANCELLED = "cancelled"


class Execution:
    """A run whose machine, store, servers and tracker have been checked, and which has not begun.

    Args:
        request: what to run.
        name: of the run in Prefect and MLflow; chosen when None.
        formats: also write the result in these formats, or its outputs to these tables.
        tracked: record it in MLflow.
        listener: follows it, in addition to what is printed.
        printed: print a line as each stage begins, continues and ends.

    Raises:
        UserError: what cannot run here, or a server that cannot be reached.
    """

    def __init__(
        self,
        request: Request,
        name: str | None = None,
        formats: Sequence[str] = (),
        tracked: bool = True,
        listener: Callable[[str, Event], None] | None = None,
        printed: bool = True,
    ):
        check_formats(request.superworkflow, formats)
        check_machine(request)  # before a server is started
        request.store.check_writable()
        self._launcher = launcher = _Cancellable(make_launcher(request.profile))
        prepare_launcher(launcher, request)
        from superworkflow.dashboards.report import attach_pictures
        from superworkflow.infra.orchestration.local_run import needs_no_server, run_here

        self._request, self._formats = request, formats
        finish = partial(attach_pictures, outcomes=request.superworkflow.outcomes)
        listeners: list[Callable[[str, Event], None]] = [RunDisplay(request)] if printed else []
        listeners += [listener] if listener is not None else []

        def follow(node: str, event: Event) -> None:
            for each in listeners:
                each(node, event)

        if needs_no_server(request):
            self.tracker, self.tracking_uri = _tracker(request, tracked)
            self._work: Callable[[], RunRecord] = partial(
                run_here, request, self.tracker, launcher, follow, finish, name
            )
            return
        from superworkflow.infra.orchestration.server import connect

        api = connect()  # while it starts, the other libraries are imported
        from superworkflow.infra.orchestration.flow import make_flow
        from superworkflow.infra.orchestration.parameters import flow_parameters

        self.tracker, self.tracking_uri = _tracker(request, tracked)  # one that is down is said before anything starts
        api.result()
        flow = make_flow(
            request.superworkflow, request=request, tracker=lambda _: self.tracker, listener=follow, finish=finish,
            run_name=name, launcher=lambda _: launcher, prepared=True,
        )  # fmt: skip
        self._work = lambda: flow(**flow_parameters(request))

    def run(self, last_words: str = "") -> RunRecord:
        """Run the stages in order; complete ones are kept whatever happens.

        Args:
            last_words: printed when signals end the process at once.

        Raises:
            SuperworkflowError: a stage failed, or its input is bad; `Stopped` after `cancel`.
            Interrupted: by a signal.
        """
        with interruptible(last_words):
            try:
                record = self._work()
            except Exception:
                if self._launcher.is_cancelled:  # Prefect has an error of its own for it
                    raise Stopped(CANCELLED) from None
                raise
            export_all(self._request.superworkflow, self._formats, record)
        return record

    def cancel(self) -> None:
        """End the running stages, from any thread; no further one starts, and `run` raises `Stopped`."""
        self._launcher.is_cancelled = True
        self._launcher.cancel()


class _Cancellable(Launcher):
    """A launcher whose stages, once the user has cancelled the run, were stopped and did not fail."""

    def __init__(self, launcher: Launcher):
        self._launcher = launcher
        self.is_cancelled = False

    def prepare(self, stages: Sequence[str], store: str = "") -> None:
        self._launcher.prepare(stages, store)

    def launch(self, call: StageCall, on_event: Callable[[Event], None]) -> Launched:
        try:
            return self._launcher.launch(call, on_event)
        except SuperworkflowError as error:
            if not self.is_cancelled:
                raise
            stopped = Stopped(CANCELLED)
            stopped.attempts = error.attempts
            raise stopped from None

    def claim_orphans(self, output: str) -> tuple[Attempt, ...]:
        return self._launcher.claim_orphans(output)

    def cancel(self) -> None:
        self._launcher.cancel()


def _tracker(request: Request, tracked: bool) -> tuple[Tracker, str | None]:
    """The tracker of a run, and the URI at which people look for it."""
    if not tracked:
        return Tracker(), None
    from superworkflow.infra.tracking.sqlite_tracker import open_tracker
    from superworkflow.infra.tracking.uris import default_tracking_uri

    uri = default_tracking_uri(request.store.root)
    return open_tracker(uri), uri
