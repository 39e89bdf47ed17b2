"""Stage `pool`, beside the project's own."""

from tests.toy_workers import POOL as STAGE

__all__ = ["STAGE"]
