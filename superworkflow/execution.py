"""One run of a request by this process: what `superworkflow run` and `superworkflow.run()` share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from superworkflow.dashboards.terminal import RunDisplay
from superworkflow.infra.config.request import Request, check_machine
from superworkflow.infra.launch import make_launcher
from superworkflow.infra.orchestration.export import check_formats, export
from superworkflow.infra.process.interrupt import interruptible
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.records import RunRecord


class Execution:
    """A run whose machine, store, servers and tracker have been checked, and which has not begun.

    Args:
        request: what to run.
        name: of the run in Prefect and MLflow; Prefect's own choice when None.
        formats: also write the result in these formats.
        tracked: record it in MLflow.

    Raises:
        UserError: what cannot run here, or a server that cannot be reached.
    """

    def __init__(self, request: Request, name: str | None = None, formats: Sequence[str] = (), tracked: bool = True):
        check_formats(request.superworkflow, formats)
        check_machine(request)  # before a server is started
        request.store.check_writable()
        launcher = make_launcher(request.profile)
        launcher.prepare(request.missing_stages(), request.store.uri)
        from superworkflow.infra.orchestration.server import connect

        api = connect()  # while it starts, the other libraries are imported
        from superworkflow.dashboards.report import attach_pictures
        from superworkflow.infra.orchestration.flow import make_flow

        self._request, self._formats = request, formats
        self.tracker, self.tracking_uri = _tracker(request, tracked)  # one that is down is said before anything starts
        api.result()
        self._flow = make_flow(
            request.superworkflow, request=request, tracker=lambda _: self.tracker, listener=RunDisplay(request),
            finish=partial(attach_pictures, outcomes=request.superworkflow.outcomes), run_name=name,
            launcher=lambda _: launcher, prepared=True,
        )  # fmt: skip

    def run(self, last_words: str = "") -> RunRecord:
        """Run the stages in order; complete ones are kept whatever happens.

        Args:
            last_words: printed when signals end the process at once.

        Raises:
            SuperworkflowError: a stage failed, or its input is bad.
            Interrupted: by a signal.
        """
        from superworkflow.infra.orchestration.parameters import flow_parameters

        with interruptible(last_words):
            record: RunRecord = self._flow(**flow_parameters(self._request))
            for name in self._formats:
                record.outputs[f"export_{name}"] = export(self._request.superworkflow, name, record)
        return record


def _tracker(request: Request, tracked: bool) -> tuple[Tracker, str | None]:
    """The tracker of a run, and the URI at which people look for it."""
    if not tracked:
        return Tracker(), None
    from superworkflow.infra.tracking.mlflow_tracker import MlflowTracker, default_tracking_uri

    uri = default_tracking_uri(request.store.root)
    return MlflowTracker(uri), uri
