"""Stage `cosegment`: a vertex program on a lattice; see `tasks.cosegment.program`.

Fields of the dataset, whose files `VertexProgram.__call__` describes: `segment` int32, the likeliest segment, which are
numbered by their mean values; `belief` float32 [segments]; and the messages. `globals.json` has `means`, `widths`
and `outliers`, of values from 0 for the least to 1 for the largest.
"""

from superworkflow.tasks.cosegment.program import PROGRAM
from superworkflow.tasks.lib.vertex.stage import program_stage

STAGE = program_stage(PROGRAM, "superworkflow.tasks.cosegment.run:run")
