"""Frames that notebooks show with units; all else of them is pandas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pandas as pd

from superworkflow.infra.contract.resources import format_bytes, format_seconds, format_usd

_UNITS: dict[str, Callable[[float], str]] = {
    "bytes": format_bytes, "s": format_seconds, "seconds": format_seconds, "usd": format_usd, "done": "{:.0%}".format,
}  # fmt: skip
"""Forms of numbers by the last word of their column's or row's name, such as `peak_memory_bytes`."""


class UnitFrame(pd.DataFrame):  # type: ignore[misc]
    """A frame whose bytes, seconds and USD a notebook shows as people write them. Parts of it are plain frames."""

    def _repr_html_(self) -> str:
        shown = self.astype(object).where(self.notna(), "")
        rows = [_form(label) for label in self.index]
        for place, column in enumerate(self.columns):
            form = _form(column)
            shown.isetitem(place, [
                _shown(value, form or (row if column != "ratio" else None))
                for value, row in zip(shown.iloc[:, place], rows, strict=True)
            ])  # fmt: skip
        return str(shown.to_html(border=0, max_rows=pd.get_option("display.max_rows")))


def _form(label: Any) -> Callable[[float], str] | None:
    words = label if isinstance(label, tuple) else (label,)
    return next((_UNITS[last] for word in words if (last := str(word).rpartition("_")[2]) in _UNITS), None)


def _shown(value: Any, form: Callable[[float], str] | None) -> Any:
    if isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value):
        return form(value) if form is not None else f"{value:.6g}" if isinstance(value, float) else value
    return value
