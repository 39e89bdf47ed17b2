"""Doubts about the input of stage `index`, for plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from superworkflow.infra.storage.source import Source
from superworkflow.tasks.index import IndexParams
from superworkflow.tasks.lib.edge_list.edge_files import detected_warnings


def doubts(params: IndexParams, sources: Mapping[str, Source]) -> Sequence[str]:
    """Warnings that the stage will give, from the first rows.

    Raises:
        UserError: the file will be refused.
    """
    return [str(each) for each in detected_warnings(sources["edges"], params)]
