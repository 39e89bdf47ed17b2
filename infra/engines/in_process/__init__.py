"""The stage's own process computes, with NumPy, Numba, DuckDB or torch."""

from superworkflow.infra.engines.base import Engine


class InProcess(Engine):
    """Needs nothing that the base has not."""

    name = "in-process"


ENGINE = InProcess()
