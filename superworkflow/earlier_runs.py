"""Datasets that are given by the run that made them, instead of by their folders."""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.extras import require_extra
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.location import Location


def find_datasets(superworkflow: Superworkflow, sources: Mapping[str, str], store: str) -> dict[str, str]:
    """Sources, in which each dataset that is given as a run has the address of what that run made.

    A dataset is the output of the stage that also takes it: an earlier `embed` of `embed`.

    Args:
        superworkflow: declares which sources are datasets.
        sources: URI of each by name, of datasets also the id, the beginning of it, or the name of a run.
        store: whose runs.

    Raises:
        UserError: nothing is at the address, and no run is called so, or it has made no such dataset.
    """
    found = dict(sources)
    for name in sorted(superworkflow.datasets & found.keys()):
        if "/" not in found[name] and Dataset.find(found[name]) is None:
            found[name] = _made_by(superworkflow, name, found[name], store)
    return found


def _made_by(superworkflow: Superworkflow, source: str, run: str, store: str) -> str:
    require_extra("flow")
    from superworkflow.infra.tracking.history import find_run
    from superworkflow.infra.tracking.run_reader import RunReader
    from superworkflow.infra.tracking.uris import default_tracking_uri

    uri = default_tracking_uri(Location.of(store))
    stage = next(stage.name for stage in superworkflow.stages if source in stage.inputs)
    try:
        recorded = find_run(uri, run)
    except UserError as error:
        raise UserError(f"neither a dataset nor a run: {error.what}", where=source, value=run,
                        remedy=f"Give the folder of a dataset of stage {stage}, or a run that `superworkflow runs` "
                        "lists") from None  # fmt: skip
    return RunReader(uri).made(recorded.run_id, stage)
