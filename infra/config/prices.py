"""Cost of a stage: the resources that it held, for how long, by a dated price table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.config.config_files import read_yaml
from superworkflow.infra.config.usage import Holding, held, span_s, widest
from superworkflow.infra.contract.resources import Gpu, Resources

FOLDER = Path(__file__).parent.parent / "prices"
GIB = 1 << 30


class FunctionPrices(BaseModel, frozen=True, extra="forbid"):
    """Functions that are paid for by call, as on AWS Lambda: memory × time in whole steps, and a fee for each call."""

    gb_second: float = Field(ge=0, description="USD for one GiB of memory for one second; its vCPUs are included.")
    request: float = Field(default=0, ge=0, description="USD for one call.")
    step_ms: float = Field(
        default=1, gt=0, description="Milliseconds of a billing step; calls are rounded up to whole steps."
    )

    def cost(self, memory: int, requests: int, seconds: float) -> float:
        """USD for calls that took equally long.

        Args:
            memory: bytes that the function was given.
            requests: how many calls.
            seconds: that they took together.
        """
        steps = math.ceil(round(seconds * 1000 / requests / self.step_ms, 6))  # 0.3 s are three steps of 0.1 s
        return requests * (self.request + self.gb_second * memory / GIB * steps * self.step_ms / 1000)


class PriceTable(BaseModel, frozen=True, extra="forbid"):
    """USD for an hour of one unit of each resource, as asked for rather than as used."""

    name: str
    date: date
    source: str = Field(description="Where the figures are from.")
    vcpu_hour: float = Field(ge=0)
    gib_hour: float = Field(ge=0)
    gpu_hour: dict[str, float] = Field(default_factory=dict)
    storage_gib_month: float = Field(default=0.0, ge=0, description="USD for one GiB in the store for a month.")

    functions: FunctionPrices | None = None

    def rate(self, resources: Resources) -> float:
        """USD per hour of `resources`, members included.

        Raises:
            UserError: a GPU type that the table does not price.
        """
        return sum(self._rate(each.resources) * each.count for each in held(resources, 0))

    def price(self, holdings: Iterable[Holding]) -> float:
        """USD for what was held.

        Raises:
            UserError: a GPU type that the table does not price, or functions where it prices none.
        """
        return sum(
            self._function(each) if each.requests else self._rate(each.resources) * each.count * each.seconds / 3600
            for each in holdings
        )

    def storage_cost(self, size: float) -> float:
        """USD for keeping this many bytes for a month."""
        return self.storage_gib_month * size / GIB

    def cost(self, resources: Resources, seconds: float) -> float:
        """USD for holding `resources`, members included, for `seconds`."""
        return self.rate(resources) * seconds / 3600

    def _rate(self, resources: Resources) -> float:
        rate = resources.cpu * self.vcpu_hour + resources.memory / GIB * self.gib_hour
        gpu = resources.gpu
        if gpu.count:
            if gpu.type is None or gpu.type not in self.gpu_hour:
                raise UserError(
                    f"the price table {self.name} has no price for this GPU type", where="gpu.type", value=gpu.type,
                    remedy=nearest(gpu.type or "", list(self.gpu_hour)),
                )  # fmt: skip
            rate += gpu.count * self.gpu_hour[gpu.type]
        return rate

    def _function(self, holding: Holding) -> float:
        if self.functions is None:
            raise UserError(
                f"the price table {self.name} has no price for functions", where="functions",
                remedy="Add `functions: {gb_second: …, request: …, step_ms: …}` to it",
            )  # fmt: skip
        return holding.count * self.functions.cost(holding.resources.memory, holding.requests, holding.seconds)


def load_prices(name: str | None = None) -> PriceTable:
    """A price table by its name, path or URI; without one, the newest that comes with the project.

    Raises:
        UserError: unknown or malformed table.
    """
    shipped = {path.stem: path for path in FOLDER.glob("*.yaml")}
    path, stem = name or max(shipped), Path(name or max(shipped)).stem
    if path in shipped:
        path = str(shipped[path])
    elif not path.endswith((".yaml", ".yml")):
        raise UserError("no such price table", where="--prices", value=name, remedy=nearest(path, list(shipped)))
    try:
        return PriceTable.model_validate({"name": stem, **read_yaml(path)})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        dotted = ".".join(str(part) for part in first["loc"])
        raise UserError(first["msg"], where=f"{path}: {dotted}", value=first.get("input"),
                        remedy="Correct the price table") from None  # fmt: skip


def unified_cost(stages: Iterable[Sequence[Holding]], prices: PriceTable) -> float:
    """USD that the same work costs on one cluster sized for the largest stage and kept for the whole run.

    The counterfactual to per-stage resources. It assumes that each stage takes as long on the larger cluster, which
    holds where the smaller one was not the bottleneck; it is an upper bound where more resources would help.

    Args:
        stages: what each of them held.
    """
    held_by = [holdings for holdings in stages if holdings]
    seconds = sum(map(span_s, held_by))
    return prices.price(each.model_copy(update={"begin_s": 0.0, "end_s": seconds}) for each in largest(held_by))


def largest(stages: Sequence[Sequence[Holding]]) -> tuple[Holding, ...]:
    """The smallest cluster into which each stage fits: one machine for its own process, more for its members.

    Returns:
        Its machine, and the members of the stage that has most of them at once, by vCPUs.
    """
    own = [each.resources for holdings in stages for each in holdings if not each.role]
    if not own:
        return ()
    gpu = max((size.gpu for size in own), key=lambda gpu: gpu.count, default=Gpu())
    machine = Resources(cpu=max(size.cpu for size in own), memory=max(size.memory for size in own), gpu=gpu)
    sets = [widest([each for each in holdings if each.role]) for holdings in stages]
    members = max(sets, key=lambda held: sum(each.count * each.resources.cpu for each in held), default=())
    return (Holding(resources=machine, end_s=0.0), *members)
