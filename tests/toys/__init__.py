"""A stage of the tests' own, for processes and pods that start with `SITE` on their path."""

from pathlib import Path

SITE = Path(__file__).parent / "site"
