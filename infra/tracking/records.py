"""Records of a run and of each of its stages, independent of the tracker."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from superworkflow.infra.base.errors import SuperworkflowError
from superworkflow.infra.config.prices import PriceTable, unified_cost
from superworkflow.infra.config.usage import Holding, consecutive, held, shortened
from superworkflow.infra.contract.diagram import Node
from superworkflow.infra.contract.metrics import Metric
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.base import Attempt, Launched
from superworkflow.infra.storage.manifest import DRIFT_PREFIX, METRIC_PREFIX, Manifest, Stat, prefixed, warnings_of
from superworkflow.infra.tracking.decision import Decision

DIGEST_LENGTH = 32
"""Characters of a dataset's digest in records; MLflow's databases keep 36."""


@dataclass(frozen=True)
class Used:
    """A source or dataset that a run or stage read.

    Args:
        name: of the input.
        digest: of its content.
        uri: where it is.
        facts: such as its bytes, by name.
    """

    name: str
    digest: str
    uri: str
    facts: Mapping[str, Stat] = field(default_factory=dict)


@dataclass(frozen=True)
class StageRecord:
    """One stage of one run.

    Args:
        name: of the node in the diagram.
        state: `ran`; `cached` when the dataset was there, or another run made it at the same time; or `failed`.
        runtime_s: seconds for which the resources were held, those of waiting for another run included and those of
            compiling kernels not; 0 when nothing was held.
        cpu_s: CPU seconds, of members too; 0 when cached.
        peak_memory_bytes: of the container where there is one, else of the process; 0 when cached.
        cost_usd: price of `holdings`.
        compile_s: seconds of compiling kernels besides, in a first run on a machine.
        compile_usd: price of the resources during these, which no cost includes.
        saved_usd: what a cached stage cost when it ran.
        figures: what the launcher measured besides, by name with its unit.
        image: image that ran, with its digest.
        attempts: every try with its resources, seconds and cost, where a launcher makes several.
        error: why it failed.
        holdings: what was held from when to when, of all attempts one after the other.
        inputs: what it read.
        course: figures that it reported while it worked, `(step, value)` by name.
        made_cpu_s: CPU seconds of making its dataset, whichever run did that.
        ended: when, in seconds since 1970.
        queued_s: from when it was its turn until it was given its resources.
        log: lines that it logged, with their times; of a long log the first and the last.
    """

    name: str
    stage: str
    digest: str
    state: Literal["ran", "cached", "failed"]
    resources: Resources
    runtime_s: float
    cpu_s: float
    peak_memory_bytes: int
    cost_usd: float
    saved_s: float
    saved_usd: float
    rows: int
    bytes: int
    output: str
    params: Mapping[str, Any] = field(default_factory=dict)
    stats: Mapping[str, Stat] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    image: str = ""
    attempts: tuple[Mapping[str, Any], ...] = ()
    error: str = ""
    compile_s: float = 0.0
    compile_usd: float = 0.0
    holdings: tuple[Holding, ...] = ()
    inputs: tuple[Used, ...] = ()
    course: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    made_cpu_s: float = 0.0
    ended: float = field(default_factory=time.time)
    queued_s: float = 0.0
    log: tuple[str, ...] = ()

    def queued_since(self, turn: float) -> StageRecord:
        """The same, of a stage whose turn came at this time, in seconds since 1970."""
        return replace(self, queued_s=max(0.0, self.ended - self.runtime_s - self.compile_s - turn))

    @property
    def rows_per_s(self) -> float:
        """Throughput in rows per second; 0 unless it ran."""
        return self.rows / self.runtime_s if self.runtime_s and self.state == "ran" else 0.0

    @property
    def took(self) -> dict[str, float]:
        """Usage under the names of `RunRecord.totals`."""
        return {
            "seconds": self.runtime_s,
            "cpu_seconds": self.cpu_s,
            "peak_memory_bytes": self.peak_memory_bytes,
            "compile_seconds": self.compile_s,
            "cost_usd": self.cost_usd,
            "saved_by_cache_usd": self.saved_usd,
        }

    @property
    def metrics(self) -> dict[str, float]:
        """Quality among the stats, without its prefix."""
        return prefixed(self.stats, METRIC_PREFIX)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the stage's input."""
        return warnings_of(self.stats)

    @property
    def drift(self) -> dict[str, float]:
        """Figures of drift among the stats, without their prefix."""
        return prefixed(self.stats, DRIFT_PREFIX)

    def document(self) -> dict[str, Any]:
        """As in a run's JSON document."""
        keys = (
            "name", "state", "runtime_s", "cpu_s", "peak_memory_bytes", "cost_usd", "rows", "output",
            "stage", "digest", "saved_s", "saved_usd", "bytes", "figures", "image", "attempts",
            "error", "compile_s",
        )  # fmt: skip
        values = asdict(self)
        holdings = [each.model_dump(mode="json", exclude_defaults=True) for each in self.holdings]
        return {key: values[key] for key in keys} | {"holdings": holdings}


def stage_record(
    node: Node, manifest: Manifest, uri: str, resources: Resources, prices: PriceTable, launched: Launched | None
) -> StageRecord:
    """Record a node that ran (`launched`), or whose dataset was there (None, or launched and reused).

    What was held is paid for in either case: a pod that waited for another run's dataset is no free pod.
    """
    measured = manifest.measured
    ran = launched is not None and not launched.reused
    compile_s = measured.compile_s if ran else 0.0
    seconds = max(0.0, launched.seconds - compile_s) if launched is not None else 0.0
    attempts, holdings, cost = _priced(launched.attempts if launched is not None else (), prices, compile_s)
    if launched is not None and launched.attempts:
        resources = launched.attempts[-1].resources
    elif seconds:
        holdings = held(resources, seconds)
        cost = prices.price(holdings)
    return StageRecord(
        name=node.name,
        stage=node.stage.name,
        digest=node.digest,
        state="ran" if ran else "cached",
        resources=resources,
        runtime_s=seconds,
        cpu_s=measured.cpu_s + _members_cpu_s(launched) if ran else 0.0,
        made_cpu_s=measured.cpu_s + (_members_cpu_s(launched) if ran else 0.0),
        peak_memory_bytes=measured.memory_bytes if ran else 0,
        cost_usd=cost,
        saved_s=0.0 if ran else measured.runtime_s,
        saved_usd=0.0 if ran else prices.cost(resources, measured.runtime_s),
        rows=manifest.rows,
        bytes=manifest.bytes,
        output=uri,
        params=node.params.model_dump(mode="json"),
        stats=manifest.stats,
        figures=launched.figures if launched is not None else {},
        image=launched.image if launched is not None else "",
        attempts=attempts,
        holdings=holdings,
        compile_s=compile_s,
        compile_usd=prices.cost(resources, compile_s) if compile_s else 0.0,
    )


def _members_cpu_s(launched: Launched | None) -> float:
    """CPU seconds of members, which the stage's own process does not see."""
    if launched is None or not launched.attempts:
        return 0.0
    roles = {each.role for each in launched.attempts[-1].holdings if each.role}
    return sum(launched.figures.get(f"{role}_cpu_s", 0.0) for role in roles)


def failed_record(
    node: Node, uri: str, resources: Resources, prices: PriceTable, error: SuperworkflowError
) -> StageRecord:
    """Record a node that was launched and left no dataset: its attempts have cost what they held."""
    attempts, holdings, cost = _priced(error.attempts, prices)
    return StageRecord(
        name=node.name,
        stage=node.stage.name,
        digest=node.digest,
        state="failed",
        resources=error.attempts[-1].resources if error.attempts else resources,
        runtime_s=sum(attempt.seconds for attempt in error.attempts),
        cpu_s=0.0,
        peak_memory_bytes=0,
        cost_usd=cost,
        saved_s=0.0,
        saved_usd=0.0,
        rows=0,
        bytes=0,
        output=uri,
        params=node.params.model_dump(mode="json"),
        attempts=attempts,
        holdings=holdings,
        error=str(error),
    )


def _priced(
    attempts: Sequence[Attempt], prices: PriceTable, compile_s: float = 0.0
) -> tuple[tuple[Mapping[str, Any], ...], tuple[Holding, ...], float]:
    """Attempts as they are recorded, what they held one after the other, and what that cost in USD.

    The last attempt spent `compile_s` seconds compiling kernels; they are not charged.
    """
    priced: list[Mapping[str, Any]] = []
    parts: list[Sequence[Holding]] = []
    for number, each in enumerate(attempts, start=1):
        compiled = compile_s if number == len(attempts) else 0.0
        parts.append(shortened(each.holdings, compiled))
        priced.append({"memory_bytes": each.resources.memory, "seconds": max(0.0, each.seconds - compiled),
                       "cost_usd": prices.price(parts[-1]), "reason": each.reason.value if each.reason else None,
                       "uid": each.uid})  # fmt: skip
    return tuple(priced), consecutive(parts), sum(each["cost_usd"] for each in priced)


@dataclass
class RunRecord:
    """One execution of a superworkflow, growing as its stages end.

    Args:
        declared: the metrics that judge it.
        decisions: what became of its models.
        began: when, in seconds since 1970.
        sources: what it was given from outside.
        page: address of its page on the orchestrator's server; empty where there is none.
    """

    run_id: str
    flow_run_id: str
    store: str
    name: str
    superworkflow: str
    stages: list[StageRecord] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    unified_usd: float = 0.0
    wall_s: float = 0.0
    declared: tuple[Metric, ...] = ()
    sources: tuple[Used, ...] = ()
    page: str = ""
    decisions: list[Decision] = field(default_factory=list)
    began: float = field(default_factory=time.time)

    def close(self, prices: PriceTable, wall_s: float) -> None:
        """Compute the totals that need all stages."""
        self.unified_usd = unified_cost([each.holdings for each in self.stages if each.state == "ran"], prices)
        self.wall_s = wall_s

    @property
    def metrics(self) -> dict[str, float]:
        """Quality by node: `evaluate.f1@0.5`."""
        return {f"{record.name}.{name}": value for record in self.stages for name, value in record.metrics.items()}

    @property
    def drift(self) -> dict[str, float]:
        """Drift of its data and model from earlier ones, by the figures' names."""
        return {name: value for record in self.stages for name, value in record.drift.items()}

    @property
    def cost_usd(self) -> float:
        return sum(record.cost_usd for record in self.stages)

    @property
    def compile_usd(self) -> float:
        """Price of compiling kernels, which `cost_usd` does not include."""
        return sum(record.compile_usd for record in self.stages)

    @property
    def saved_usd(self) -> float:
        """Cost that the cached stages saved."""
        return sum(record.saved_usd for record in self.stages)

    @property
    def value(self) -> float:
        """1 / (seconds × USD) of the stages that ran, as Dorylus (Thorpe et al., OSDI 2021) defines it; 0 without."""
        spent = sum(record.runtime_s for record in self.stages) * self.cost_usd
        return 1 / spent if spent > 0 else 0.0

    def totals(self) -> dict[str, float]:
        """Totals of the run, by name."""
        return {
            "seconds": sum(record.runtime_s for record in self.stages),
            "wall_seconds": self.wall_s,
            "cpu_seconds": sum(record.cpu_s for record in self.stages),
            "peak_memory_bytes": max((record.peak_memory_bytes for record in self.stages), default=0),
            "compile_seconds": sum(record.compile_s for record in self.stages),
            "cost_usd": self.cost_usd,
            "value": self.value,
            "saved_by_cache_usd": self.saved_usd,
            "unified_cost_usd": self.unified_usd,
            "stages_ran": sum(record.state == "ran" for record in self.stages),
            "stages_cached": sum(record.state == "cached" for record in self.stages),
            "stages_failed": sum(record.state == "failed" for record in self.stages),
        }

    def document(self) -> dict[str, Any]:
        """The JSON document of the run."""
        return {
            "run_id": self.run_id,
            "flow_run_id": self.flow_run_id,
            "name": self.name,
            "store": self.store,
            "stages": [record.document() for record in self.stages],
            "metrics": self.metrics,
            "drift": self.drift,
            "totals": self.totals(),
            "promotion": [each.document() for each in self.decisions],
            **self.outputs,
        }
