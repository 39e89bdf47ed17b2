"""Runs and their stages in full, for pages: all figures, tags and data. Imports nothing of MLflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from superworkflow.infra.tracking.history import RecordedRun
from superworkflow.infra.tracking.metric_keys import drift_keys, quality_keys, total_keys
from superworkflow.infra.tracking.records import DIGEST_LENGTH, RunRecord, StageRecord
from superworkflow.infra.tracking.tags import DEPLOYMENT_ID_TAG, DEPLOYMENT_TAG, ERROR_TAG, PARENT_TAG


@dataclass(frozen=True)
class DetailedRun(RecordedRun):
    """One run with all that is recorded of it.

    Args:
        ended: None while it runs.
        figures: all metrics, by the names that MLflow has.
        page: its address in MLflow.
    """

    ended: datetime | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    page: str = ""

    @property
    def deployment(self) -> str:
        """Name of its deployment; empty where it has none."""
        return self.tags.get(DEPLOYMENT_TAG, "")

    @property
    def deployment_id(self) -> str:
        return self.tags.get(DEPLOYMENT_ID_TAG, "")

    @property
    def is_trial(self) -> bool:
        """True if it is a trial of a sweep."""
        return PARENT_TAG in self.tags

    @property
    def error(self) -> str:
        """Why it did not end well."""
        return self.tags.get(ERROR_TAG, "")


@dataclass(frozen=True)
class Datum:
    """A source or dataset that a run or stage read, or a dataset that it wrote.

    Args:
        role: `source`, `input` or `output`.
        name: of the input; of an output the stage.
        digest: as far as MLflow keeps it.
    """

    role: str
    name: str
    digest: str
    uri: str = ""


@dataclass(frozen=True)
class RecordedStageRun:
    """One stage of one run.

    Args:
        state: `ran`, `cached` or `failed`.
        ended: when it was recorded.
        seconds: for which resources were held, without compiling.
        cpu: vCPUs that its own process or pod was given.
        memory: bytes that it was given.
        members: whether it had members in addition to its own process.
        queued_s: from when it was its turn until it was given its resources.
        figures: all others by name.
        warnings: warnings about its input.
        digest: of its dataset.
        data: what it read and wrote.
        course: figures by step, of a run that is just ending.
        log: likewise.
    """

    name: str
    state: str
    ended: datetime
    seconds: float
    compile_s: float
    cpu_s: float
    memory_bytes: float
    rows: float
    cost_usd: float
    saved_usd: float
    cpu: float
    memory: int
    members: bool = False
    queued_s: float = 0.0
    error: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    digest: str = ""
    data: tuple[Datum, ...] = ()
    course: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    log: tuple[str, ...] = ()

    @property
    def began(self) -> datetime:
        """When it was given its resources."""
        return self.ended - timedelta(seconds=self.seconds + self.compile_s)


def as_detailed(run: RunRecord, page: str) -> DetailedRun:
    """A closed run that ends well, as it will be read."""
    started = datetime.fromtimestamp(run.began, UTC)
    figures = total_keys(run.totals()) | quality_keys(run.metrics) | drift_keys(run.drift)
    figures |= {f"promotion/{name}": value for each in run.decisions for name, value in each.figures.items()}
    return DetailedRun(
        run_id=run.run_id, name=run.name, superworkflow=run.superworkflow, status="FINISHED",
        started=started,
        params={f"{each.name}.{name}": str(value) for each in run.stages for name, value in each.params.items()},
        metrics=run.metrics, stages={each.name: {**each.took, "cached": float(each.state == "cached")}
                                     for each in run.stages},
        totals=run.totals(), declared=run.declared,
        sources={each.name: each.digest[:DIGEST_LENGTH] for each in run.sources},
        outcome=run.decisions[-1].verdict if run.decisions else "", ended=started + timedelta(seconds=run.wall_s),
        tags={"superworkflow.decision": str(run.decisions[-1])} if run.decisions else {}, figures=figures, page=page,
    )  # fmt: skip


def as_stage(record: StageRecord) -> RecordedStageRun:
    """A stage that has ended, as it will be read."""
    return RecordedStageRun(
        name=record.name, state=record.state, ended=datetime.fromtimestamp(record.ended, UTC),
        seconds=record.runtime_s, compile_s=record.compile_s, cpu_s=record.cpu_s,
        memory_bytes=record.peak_memory_bytes, rows=record.rows, cost_usd=record.cost_usd, saved_usd=record.saved_usd,
        cpu=record.resources.cpu, memory=record.resources.memory, members=bool(record.resources.groups),
        queued_s=record.queued_s, error=record.error, figures=dict(record.figures), warnings=record.warnings,
        digest=record.digest, data=(
            *(Datum("input", each.name, each.digest[:DIGEST_LENGTH], each.uri) for each in record.inputs),
            Datum("output", record.stage, record.digest[:DIGEST_LENGTH], record.output),
        ), course=record.course, log=record.log,
    )  # fmt: skip
