"""Order-sensitive programs that worker groups run in tests."""

import dataclasses

from superworkflow.tasks.lib.vertex.program import Sync, VertexProgram, keep_fields
from superworkflow.tasks.pagerank.program import PROGRAM as PAGERANK
from tests.tasks.lib.vertex.test_edge_fields import PROGRAM as _NOTES
from tests.tasks.lib.vertex.test_engine import PROGRAMS, start, value_of

__all__ = ["EDGE", "FULL", "NOTES", "PAGERANK", "VERTEX"]

NOTES = dataclasses.replace(_NOTES, restart=keep_fields)
_SYNCS = {"total": Sync(value_of), "largest": Sync(value_of, merge="max", every=2), "last": Sync(value_of, every=0)}
VERTEX, EDGE, FULL = (
    VertexProgram(
        name,
        {"value": "int64"},
        PROGRAMS[name],
        start,
        consistency=name,
        syncs=_SYNCS,  # type: ignore[arg-type]
        restart=keep_fields,
    )
    for name in ("vertex", "edge", "full")
)
