"""The work of stage `publish_lattice`."""

from __future__ import annotations

import numpy as np

from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.tasks.lib.vertex.stage import whole_field


def run(job: StageRun[StageParams]) -> Output:
    """Write the arrays; see `tasks.publish_lattice`.

    Raises:
        UserError: the values are of another lattice.
    """
    graph, values = job.inputs["graph"], job.inputs["values"]
    vertices, shape = int(graph.stats["vertices"] or 0), [int(each) for each in str(graph.stats["shape"]).split(",")]
    names, levels = str(values.stats["fields"]).split(","), graph.array("levels.npy")
    for name in names:
        field = whole_field(graph, values, name)
        made = (levels[field] if name == "label" else field).reshape(*shape, *field.shape[1:])
        job.output.array(f"{name}.npy", made)
        if name in ("label", "segment") and graph.stats.get("picture"):
            from PIL import Image

            greys = made if name == "label" else (made * (255 // max(1, int(made.max())))).astype(np.uint8)
            with job.output.file(f"{name}.png") as path:
                Image.fromarray(greys).save(path, format="PNG")
    return Output(rows=vertices, stats={"vertices": vertices, "fields": len(names)})
