"""Run by each interpreter that has this folder on its path: the second superworkflow beside the project's own."""

from pathlib import Path

import superworkflow.flows
import superworkflow.tasks

_HERE = Path(__file__).parent.parent
superworkflow.flows.__path__.append(str(_HERE / "flows"))
superworkflow.tasks.__path__.append(str(_HERE / "stages"))
