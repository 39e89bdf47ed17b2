"""Other formats of a result, written on request."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path

from infra.dataset import Dataset
from infra.diagram import Superworkflow
from infra.errors import UserError
from infra.filesystem import Location
from infra.params import nearest
from infra.records import RunRecord


def check_formats(superworkflow: Superworkflow, names: Iterable[str]) -> None:
    """Raises UserError for a format that the superworkflow does not have."""
    for name in names:
        if name not in superworkflow.exports:
            valid = list(superworkflow.exports)
            raise UserError("no such export format", where="--export", value=name, remedy=nearest(name, valid))


def export(superworkflow: Superworkflow, name: str, run: RunRecord) -> str:
    """Write one format beside the store's stages, as `<store>/exports/<digest>.<ending>`; returns its URI."""
    definition = superworkflow.exports[name]
    record = next(record for record in run.stages if record.name == definition.node)
    target = Location.of(run.store).join("exports", f"{record.digest}.{definition.filename}")
    local = target.local_path or Path(f"{record.digest}.{definition.filename}").absolute()
    local.parent.mkdir(parents=True, exist_ok=True)
    module, _, function = definition.function.partition(":")
    dataset = Dataset.open(Location.of(record.output))
    getattr(importlib.import_module(module), function)(dataset, local)
    dataset.close()
    if target.local_path is None:
        target.upload(local)
        local.unlink()
    return target.uri
