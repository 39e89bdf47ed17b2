"""Run by each interpreter that has this folder on its path: adds the toy stages to the project's own."""

from pathlib import Path

import superworkflow.tasks

superworkflow.tasks.__path__.append(str(Path(__file__).parent.parent / "stages"))
