"""Import what stages import, so that images hold its bytecode.

Run as `python -m superworkflow.images.import_stages [ENGINE]`.

With an engine, of those stages that have it; else of what runs in process. Stages that need what an image does not have
are passed over, as its pods do not run them.
"""

from __future__ import annotations

import sys

from superworkflow.infra.contract.stage import IN_PROCESS
from superworkflow.tasks import load_stage, stage_names


def import_all(engine: str) -> list[str]:
    """Names of the stages that could be imported."""
    found = []
    for name in stage_names():
        stage = load_stage(name)
        if engine == IN_PROCESS or engine in stage.engines:
            try:
                stage.function(engine)
            except ImportError:
                continue
            found.append(name)
    return found


if __name__ == "__main__":
    imported = import_all(*sys.argv[1:] or [IN_PROCESS])
    sys.stdout.write(f"imported {', '.join(imported)}\n")
    sys.exit(0 if imported else "no stage could be imported")
