"""Stage `publish_coefficients`: the coefficients of features, as a table.

Files: `coefficients.parquet` with columns `feature`, its index in the samples' file or
its name in their table, and `coefficient`; of classes also
`class`, the label that they speak for, of two classes the larger one. Features that did not occur are left out.
`model.json` has `intercept`, of classes a list in their order, `gap`, `objective` and what else the program says.
"""

from superworkflow.infra.contract.stage import Input, Stage, StageParams
from superworkflow.tasks.publish_fields import estimate

STAGE = Stage(
    name="publish_coefficients",
    params=StageParams,
    inputs={"graph": Input("feature_graph dataset"), "values": Input("lasso or svm dataset of that graph")},
    run="superworkflow.tasks.publish_coefficients.run:run",
    estimate=estimate,
    help="coefficients of features, as a table",
)
