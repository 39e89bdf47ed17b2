"""Stage `pool` of another package than the project's."""

from tests.toy_workers import POOL as STAGE

__all__ = ["STAGE"]
