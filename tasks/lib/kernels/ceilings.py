"""Ceilings of this machine on one core, and the variants of kernels that it runs."""

from __future__ import annotations

from dataclasses import dataclass

from superworkflow.infra.process.resource_usage import processor
from superworkflow.infra.process.threads import available_cpus
from superworkflow.tasks.lib.kernels.prefetch import LEVEL
from superworkflow.tasks.lib.kernels.products import PRODUCTS
from superworkflow.tasks.lib.kernels.rows_ahead import DISTANCE


@dataclass(frozen=True)
class ChosenVariant:
    """A choice of variants with what was measured now.

    Args:
        name: of the choice, as in `SUPERWORKFLOW_VARIANTS`.
        chosen: the variant that kernels are compiled with; it was measured when it was first needed.
        forced: the environment names it.
        unit: of the rates.
        rates: of each variant.
    """

    name: str
    chosen: str
    forced: bool
    unit: str
    rates: dict[str, float]


@dataclass(frozen=True)
class MachineFacts:
    """Ceilings of one core.

    Args:
        processor: its name, and the number of cores that this process may use.
        choices: of variants.
        arithmetic: FLOP/s of products of bfloat16 with sums of float32, by the fastest way.
        memory: random reads a second of a table beyond the caches, many on their way at once.
    """

    processor: str
    choices: tuple[ChosenVariant, ...]
    arithmetic: float
    memory: float


def measure_machine() -> MachineFacts:
    """Measure all variants, in about a second."""
    choices = tuple(
        ChosenVariant(choice.name, choice.value, choice.forced is not None, choice.unit, choice.measured())
        for choice in (LEVEL, PRODUCTS, DISTANCE)
    )
    reads, products, _ = (max(choice.rates.values()) for choice in choices)
    return MachineFacts(processor_name(), choices, products, reads)


def processor_name() -> str:
    """Model of the processor, and the cores that this process may use."""
    return f"{processor()}, {available_cpus()} cores"
