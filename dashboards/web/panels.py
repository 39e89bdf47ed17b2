"""Panels as pages draw them: Plotly's parts in the dashboard's layout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from superworkflow.dashboards.web.figures import chart

MOST_BYTES = 64 << 20
"""Size of a panel that pages show."""


def drawn(panel: Mapping[str, Any]) -> dict[str, Any]:
    """A panel's document with the layout of its plots."""
    parts = [_drawn(each) if each.get("kind") == "plot" else each for each in panel["parts"]]
    return {**panel, "parts": parts}


def _drawn(part: Mapping[str, Any]) -> dict[str, Any]:
    layout = part.get("layout")
    figure = chart(part["data"], int(part.get("height", 300)), **(layout if isinstance(layout, dict) else {}))
    return {"kind": "plot", "title": part.get("title", ""), "note": part.get("note", ""), **figure}


def read_panel(text: bytes) -> dict[str, Any] | None:
    """The panel in a file that anyone may have written, as pages draw it; None where it holds none."""
    try:
        found = json.loads(text)
        return drawn(found) if isinstance(found, dict) and isinstance(found["parts"], list) else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
