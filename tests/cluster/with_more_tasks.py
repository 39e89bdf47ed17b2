"""The command line with the project's stages and those of `more_tasks`, for pods of some tests."""

import sys
from pathlib import Path

import superworkflow.tasks
from superworkflow.__main__ import main

superworkflow.tasks.__path__.append(str(Path(__file__).parent / "more_tasks"))

if __name__ == "__main__":
    sys.exit(main())
