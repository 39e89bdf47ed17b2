"""Other formats of a result, written on request."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from superworkflow.infra.dataset import Dataset
from superworkflow.infra.diagram import Superworkflow
from superworkflow.infra.errors import UserError
from superworkflow.infra.filesystem import Location
from superworkflow.infra.import_strings import imported
from superworkflow.infra.params import nearest
from superworkflow.infra.records import RunRecord


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
    final = target.local_path
    if final is not None:
        final.parent.mkdir(parents=True, exist_ok=True)
    dataset = Dataset.open(Location.of(record.output))
    # Beside where it goes, so that it can be renamed: nobody sees half of it.
    with tempfile.TemporaryDirectory(prefix=".export-", dir=final and final.parent) as scratch:
        path = Path(scratch) / target.name
        try:
            imported(definition.function)(dataset, path)
        finally:
            dataset.close()
        if final is not None:
            path.replace(final)
        else:
            target.upload(path)
    return target.uri
