"""What a stage costs: resources × time × a dated price table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from superworkflow.infra.errors import UserError
from superworkflow.infra.params import nearest
from superworkflow.infra.resources import Gpu, Resources
from superworkflow.infra.settings import read_yaml

FOLDER = Path(__file__).parent / "prices"
GIB = 1 << 30


class PriceTable(BaseModel):
    """USD for an hour of one unit of each resource, as asked for rather than as used."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    date: date
    source: str = Field(description="Where the figures are from.")
    vcpu_hour: float = Field(ge=0)
    gib_hour: float = Field(ge=0)
    gpu_hour: dict[str, float] = Field(default_factory=dict)

    def rate(self, resources: Resources) -> float:
        """USD per hour of `resources`.

        Raises:
            UserError: a GPU type that the table does not price.
        """
        rate = resources.total_cpu * self.vcpu_hour + resources.total_memory / GIB * self.gib_hour
        gpu = resources.gpu
        if gpu.count:
            if gpu.type is None or gpu.type not in self.gpu_hour:
                raise UserError(
                    f"the price table {self.name} has no price for this GPU type", where="gpu.type", value=gpu.type,
                    remedy=nearest(gpu.type or "", list(self.gpu_hour)),
                )  # fmt: skip
            rate += gpu.count * self.gpu_hour[gpu.type]
        return rate

    def cost(self, resources: Resources, seconds: float) -> float:
        """USD for holding `resources` for `seconds`."""
        return self.rate(resources) * seconds / 3600


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


@dataclass(frozen=True)
class Usage:
    """One stage's hold on its resources."""

    resources: Resources
    seconds: float


def largest(all_resources: Iterable[Resources]) -> Resources:
    """The smallest single allocation into which every one of these fits."""
    sizes = list(all_resources)
    gpu = max((size.gpu for size in sizes), key=lambda gpu: gpu.count, default=Gpu())
    executors = max(
        (size.executors for size in sizes if size.executors),
        key=lambda each: each.count * each.cpu,
        default=None,
    )
    return Resources(
        cpu=max(size.cpu for size in sizes), memory=max(size.memory for size in sizes), gpu=gpu, executors=executors
    )


def unified_cost(usages: Iterable[Usage], prices: PriceTable) -> float:
    """USD that the same work costs on one cluster sized for the largest stage and kept for the whole run.

    The counterfactual to per-stage resources. It assumes that each stage takes as long on the larger cluster, which
    holds where the smaller one was not the bottleneck; it is an upper bound where more resources would help.
    """
    held = list(usages)
    if not held:
        return 0.0
    return prices.cost(largest(usage.resources for usage in held), sum(usage.seconds for usage in held))
