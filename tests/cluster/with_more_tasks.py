"""The command line with the stages of `more_tasks` beside the project's own: what pods of some tests run."""

import sys
from pathlib import Path

import superworkflow.tasks
from superworkflow.__main__ import main

superworkflow.tasks.__path__.append(str(Path(__file__).parent / "more_tasks"))

if __name__ == "__main__":
    sys.exit(main())
