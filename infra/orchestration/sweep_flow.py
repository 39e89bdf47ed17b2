"""A sweep as a Prefect flow: its trials are subflow runs, and a table artifact shows them as they end."""

from __future__ import annotations

import contextvars
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from prefect import flow
from prefect.artifacts import create_link_artifact, create_table_artifact

from superworkflow.infra.config.request import Request
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.launch.base import Launcher
from superworkflow.infra.orchestration.flow import make_flow
from superworkflow.infra.orchestration.followed_node import Listener
from superworkflow.infra.orchestration.liveness import enter_flow, signs_of_life
from superworkflow.infra.orchestration.parameters import flow_parameters
from superworkflow.infra.orchestration.server import ask_once
from superworkflow.infra.orchestration.trial_host import TrialHost
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.records import RunRecord

T = TypeVar("T")


class FlowTrialHost(TrialHost):
    """Runs trials as subflow runs.

    Args:
        study: name of the study.
    """

    def __init__(self, study: str):
        self._key = re.sub(r"[^a-z0-9]+", "-", f"sweep-{study}".lower()).strip("-")

    def run_trial(
        self, request: Request, name: str, tracker: Callable[[], Tracker], listener: Listener, launcher: Launcher
    ) -> RunRecord:
        """Run one trial; see `TrialHost`."""
        run = make_flow(
            request.superworkflow, request=request, tracker=lambda _: tracker(), listener=listener, run_name=name,
            launcher=lambda _: launcher,
        )  # fmt: skip
        record: RunRecord = run(**flow_parameters(request))
        return record

    def in_context(self, work: Callable[[], T]) -> Callable[[], T]:
        """`work` as part of the flow run of the calling thread; see `TrialHost`."""
        context = contextvars.copy_context()
        return lambda: context.run(work)

    def table(self, rows: Sequence[Mapping[str, Any]], description: str) -> None:
        """A new version of the one artifact; see `TrialHost`."""
        create_table_artifact(key=self._key, table=[dict(row) for row in rows], description=description)

    def link(self, url: str) -> None:
        """An artifact; see `TrialHost`."""
        create_link_artifact(key="tracking-run", link=url, link_text="This sweep in MLflow")


def run_as_flow(
    superworkflow: Superworkflow, study: str, parameters: Mapping[str, Any], body: Callable[[TrialHost], T]
) -> T:
    """Run `body` as a flow named after the study; what it raises is raised.

    Args:
        superworkflow: which pipeline is tuned.
        study: name of the study, and of the flow run.
        parameters: plain values that Prefect shows as the flow run's parameters.
        body: the sweep.
    """

    @flow(
        name=f"sweep-{superworkflow.name}", flow_run_name=study, description=f"Sweep over {superworkflow.name}",
        validate_parameters=False, persist_result=False,
    )  # fmt: skip
    def sweep(settings: dict[str, Any]) -> T:
        enter_flow()
        try:
            with signs_of_life():
                return body(FlowTrialHost(study))
        except KeyboardInterrupt:
            ask_once()
            raise

    return sweep(dict(parameters))
