"""Arrow without pandas, which it imports at its first conversion to see whether values come from there.

For stages that have no such values. A fresh process of stage `label` on a small graph takes 0.33 CPU seconds and
104 MB instead of 0.54 and 141. The fork server would import pandas once a run; pods, stages with GPUs and
`superworkflow stage` start without one. Arrow looks once; if it finds no pandas, it works without. Functions that need
it, such as `to_pandas`, import it all the same.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_PANDAS = "pandas"
_left_out = False


class _Hidden(importlib.abc.MetaPathFinder):
    """Finds no pandas, whatever is installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == _PANDAS:
            raise ModuleNotFoundError(f"No module named {_PANDAS!r}", name=_PANDAS)
        return None


def leave_out_pandas() -> None:
    """Have Arrow look for pandas now and not find it, unless this process has imported it already."""
    global _left_out
    if _PANDAS in sys.modules:
        return
    import pyarrow as pa

    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(hidden)
    _left_out = True


def take_in_pandas() -> None:
    """Undo `leave_out_pandas`, for code that may hand values of pandas to Arrow: a missing one is a null again."""
    global _left_out
    if _left_out:
        import pyarrow as pa

        with contextlib.suppress(ImportError):
            pa.table({}).to_pandas()
        _left_out = False
