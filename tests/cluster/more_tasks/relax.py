"""Stage `relax` of another package than the project's."""

from tests.toy_workers import STAGE

__all__ = ["STAGE"]
