"""Log of the process of a flow."""

import io
import logging

import pytest

from superworkflow.infra.base.errors import SuperworkflowError
from superworkflow.infra.orchestration import liveness


def test_errors_of_this_project_have_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefect logs what ends a flow with its traceback, such as of a run whose model was rejected."""
    monkeypatch.setattr(liveness, "take_signals_back", lambda: None)
    log, written = logging.getLogger("prefect.flow_runs"), io.StringIO()
    monkeypatch.setattr(log, "handlers", [logging.StreamHandler(written)])
    liveness.enter_flow()
    for error in (SuperworkflowError("m version 2: rejected"), ValueError("a fault")):
        try:
            raise error
        except Exception:
            log.exception("it ended")
    first, *others = written.getvalue().splitlines()
    assert first == "m version 2: rejected"
    assert others[:2] == ["it ended", "Traceback (most recent call last):"]
