"""Stage `relax`, beside the project's own."""

from tests.toy_workers import STAGE

__all__ = ["STAGE"]
