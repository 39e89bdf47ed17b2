"""Stage `mrf_learning`: a vertex program on a lattice; see `tasks.mrf_learning.program`.

`globals.json` has `smoothing`, as `bp` takes it; `weights` of the labels, the first 1; and for each vertex the
`observed` and `expected` number of pairs of equal neighbours, and of each label. Field of the dataset, whose files
`VertexProgram.__call__` describes: `belief` float64 [labels], marginals of the learned model; by pseudo-likelihood
given the labels of the neighbours.
"""

from superworkflow.tasks.lib.vertex.stage import program_stage
from superworkflow.tasks.mrf_learning.program import PROGRAM

STAGE = program_stage(PROGRAM, "superworkflow.tasks.mrf_learning.run:run", version="2")
