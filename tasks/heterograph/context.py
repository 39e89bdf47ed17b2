"""Features of the graph as a whole, from the one row of the context's table."""

from __future__ import annotations

from typing import Any

import numpy as np

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import StageRun
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.heterograph.features import FeatureOwner, write_features
from superworkflow.tasks.heterograph.layout import SchemaLayout, sorted_features
from superworkflow.tasks.heterograph.tables import Table
from superworkflow.tasks.lib.graph.heterograph import Feature


def write_context(job: StageRun[Any], source: Source, layout: SchemaLayout) -> tuple[Feature, ...]:
    """Write the features of the context and return them.

    Raises:
        UserError: its table has not one row, or a value is not what the schema says.
    """
    name = layout.table(layout.context)
    features = sorted_features(layout.context.features)
    if not name:
        if features:
            job.progress.log("the context has no table; its features are left out")
        return ()
    table = Table(source, name, job.scratch, job.threads)
    rows = sum(len(batch.columns[0]) for batch in table.batches([features[0].name])) if features else 1
    if rows != 1:
        raise UserError("the table of the context has one row", where=layout.where, value=f"{rows} rows",
                        remedy="Give the features of the whole graph in one row")  # fmt: skip
    write_features(job.output, FeatureOwner("context", None, 1), features, table, np.zeros(1, np.int32))
    table.close()
    return features
