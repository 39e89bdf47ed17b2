"""Times of held-out ratings, where the ratings have slices of time."""

from __future__ import annotations

from functools import partial

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.index import IndexParams
from superworkflow.tasks.lib.edge_list.edge_files import detect_files, opened


def check_times(params: IndexParams, edges: Source, test: Source) -> None:
    """Refuse held-out ratings that slices of time cannot be found for, by the first rows, before a model is trained.

    Args:
        params: by which ratings are read; they name the column of times.
        edges: ratings.
        test: held-out ones.

    Raises:
        UserError: a file cannot be read, or held-out ratings have no times, or of another kind.
    """
    try:
        found = _unit(params, test)
    except UserError as error:
        if "index.time" not in f"{error.where} {error.remedy}":
            raise
        raise UserError(
            "held-out ratings need times if the ratings have slices of time", where=test.uri,
            remedy="Give them the column of times that the ratings have, or set bptf.slices=1",
        ) from None  # fmt: skip
    check_unit(found, _unit(params, edges), test.uri)


def check_unit(found: int, wanted: int, where: str) -> None:
    """Refuse times of another unit than those of the ratings, each by how many there are in a second.

    Raises:
        UserError: they differ.
    """
    if found != wanted:
        raise UserError("held-out ratings have times of another kind than the ratings", where=where,
                        value=f"{found} in a second, and {wanted}",
                        remedy="Write both as dates, or in the same unit")  # fmt: skip


def _unit(params: IndexParams, source: Source) -> int:
    params = params.model_copy(update={"from_time": None, "until": None})
    times = detect_files(source, params, partial(opened, source))[0][1].times
    assert times is not None
    return times.unit
