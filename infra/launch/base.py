"""The contract of every launcher."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.manifest import Measurement
from infra.profile import Placement

Event = dict[str, Any]


@dataclass(frozen=True)
class StageCall:
    """One execution of a stage, in the terms of its command line.

    Args:
        node: name in the diagram, for logs and labels.
        stage: name of the stage.
        params: parameter values.
        inputs: URI of each input.
        output: URI of the dataset.
        placement: engine, image and resources.
        labels: what the launcher may attach to what it starts, such as the flow run.
    """

    node: str
    stage: str
    params: Mapping[str, Any]
    inputs: Mapping[str, str]
    output: str
    placement: Placement
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Launched:
    """A call that ended well.

    Args:
        measured: what the stage measured of itself.
        reused: another run had made the dataset while this call waited for it.
        seconds: wall time for which the resources were held, start-up included; what cost is computed from.
    """

    measured: Measurement
    reused: bool
    seconds: float


class Launcher(ABC):
    """Starts a stage somewhere, follows it, and says how it ended.

    Implementations promise:

    - `launch` returns only when the dataset is complete, and raises only when nothing of the call runs any more.
    - What the stage prints reaches `on_event` line by line while it runs: progress and log events as the stage made
      them, other lines as `{"event": "log", "message": line}`.
    - A stage that ended without a dataset raises `StageFailed` with a reason that a person can act on; bad input that
      the stage itself named raises `UserError`.
    - When the calling process dies, however it dies, what it launched ends as well.
    """

    @abstractmethod
    def launch(self, call: StageCall, on_event: Callable[[Event], None]) -> Launched:
        """Run one stage to its end."""

    @abstractmethod
    def cancel(self) -> None:
        """End everything that this launcher has running; safe to call from any thread, and more than once."""
