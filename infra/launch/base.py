"""The contract of every launcher."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from superworkflow.infra.config.profile import Placement
from superworkflow.infra.config.usage import Holding, held
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.process.exit_status import Reason
from superworkflow.infra.storage.manifest import Measurement
from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.store import Place

Event = dict[str, Any]


@dataclass(frozen=True)
class StageCall:
    """One execution of a stage, in the terms of its command line.

    Args:
        node: name in the diagram, for logs and what is launched.
        stage: name of the stage.
        params: parameter values.
        inputs: URI of each input.
        output: URI of the dataset.
        placement: engine, image and resources.
        labels: what the launcher may attach to what it starts, such as the flow run.
        image_kind: kind of image that holds what the stage needs.
        digest: planned digest of the dataset; the stage fails where its own differs. Empty without a plan.
        expected_memory: peak in bytes by the stage's own estimate, 0 when there is none.
        sources: those of the inputs that are sources, where the caller has opened them.
        code: reference to the user's file that defines the stage (`infra.contract.code_file.read_code`); empty for
            none.
    """

    node: str
    stage: str
    params: Mapping[str, Any]
    inputs: Mapping[str, str]
    output: str
    placement: Placement
    labels: Mapping[str, str] = field(default_factory=dict)
    image_kind: str = "cpu"
    digest: str = ""
    expected_memory: int = 0
    sources: Mapping[str, Source] = field(default_factory=dict)
    code: str = ""

    def arguments(self, resources: Resources) -> list[str]:
        """Arguments of the command line that runs the stage and reports in events."""
        arguments = ["stage", self.stage, "--params-json", json.dumps(dict(self.params))]
        for name, uri in self.inputs.items():
            arguments += ["--input", f"{name}={uri}"]
        arguments += ["--output", self.output, "--resources-json", resources.model_dump_json()]
        arguments += ["--digest", self.digest] if self.digest else []
        arguments += ["--code", self.code] if self.code else []
        return [*arguments, "--engine", self.placement.engine, "--events"]

    @property
    def place(self) -> Place:
        """Store, stage and digest of the dataset."""
        return Place.of(self.output)


@dataclass(frozen=True)
class Attempt:
    """One try at a call.

    Args:
        resources: that were asked for.
        seconds: for which the stage's own process or pod held them.
        reason: why it failed, if it did.
        uid: of the Job, by which it is paid for once; empty for a process.
        holdings: what cost is computed from; by default all of the resources for the whole time.
    """

    resources: Resources
    seconds: float
    reason: Reason | None = None
    uid: str = ""
    holdings: tuple[Holding, ...] = ()

    def __post_init__(self) -> None:
        if not self.holdings:
            object.__setattr__(self, "holdings", held(self.resources, self.seconds))


@dataclass(frozen=True)
class Launched:
    """A call that ended well.

    Args:
        measured: what the stage measured of itself.
        reused: another run had made the dataset while this call waited for it.
        seconds: wall time for which the resources were held, start-up and waiting included.
        attempts: every try, the last one the good one; empty where there is only ever one, on the profile's resources.
        figures: what else the launcher measured, by name with its unit, such as `schedule_s`.
        image: image that ran, with its digest.
    """

    measured: Measurement
    reused: bool
    seconds: float
    attempts: tuple[Attempt, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    image: str = ""


class Launcher(ABC):
    """Starts a stage somewhere, follows it, and says how it ended.

    Implementations promise:

    - `launch` returns only when the dataset is complete, and raises only when nothing of the call runs any more.
    - What the stage prints reaches `on_event` line by line while it runs: progress and log events as the stage made
      them, other lines as `{"event": "log", "message": line}`.
    - A stage that ended without a dataset raises `StageFailed` with a reason that a person can act on; bad input that
      the stage itself named raises `UserError`. Either carries its `attempts`, which have cost something.
    - When the calling process dies, however it dies, what it launched ends as well; where nothing can notice that (a
      Job of a flow that was killed outside of the cluster), the next call for the same dataset adopts it.
    - What another launcher that lives has running is never ended; a call for the same dataset waits for it.
    - Each attempt is given to one caller, to be recorded, also where several waited for the same dataset.
    """

    def prepare(self, stages: Sequence[str], store: str = "") -> None:
        """Get ready, in the background, to launch these stages; nothing needs it.

        Args:
            stages: names of installed ones, in the order in which they will probably be launched; there may be others.
            store: URI of the store.
        """
        return

    @abstractmethod
    def launch(self, call: StageCall, on_event: Callable[[Event], None]) -> Launched:
        """Run one stage to its end."""

    def claim_orphans(self, output: str) -> tuple[Attempt, ...]:
        """Attempts at a dataset that is there by now, whose runs died before they recorded them.

        Each is given to one caller only, who records it.

        Args:
            output: URI of the dataset.
        """
        return ()

    @abstractmethod
    def cancel(self) -> None:
        """End everything that this launcher has running; safe to call from any thread, and more than once."""
