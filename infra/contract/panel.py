"""Panels: figures of a run's datasets as data, which pages draw without code of the superworkflow.

    outcomes=(
        Panel("fit", "my.package.panels:residuals", "residuals", title="Residuals", others=("clean",)),
    )

    def residuals(datasets: Mapping[str, Dataset]) -> list[Part] | None:
        errors = datasets["fit"].array("errors.npy")
        return [
            plot([{"type": "histogram", "x": packed(errors)}], title="Errors", xaxis={"title": {"text": "USD"}}),
            table(["row", "error"], worst, note="The largest errors."),
        ]

The run's page and its report show them, and MLflow keeps them as `panels/<name>.json`. A function should take a second
and 100,000 items at most: it runs when the stages have ended.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMAT = 1
MOST_POINTS = 100_000
"""Points of one part that pages draw without a delay."""
MOST_ROWS = 2000
"""Rows of a table that pages show."""


@dataclass(frozen=True)
class Panel:
    """Figures of datasets, shown on the run's page.

    Args:
        node: name of the node whose dataset is shown; without it there is no panel.
        function: import string of `function(datasets)`, which is given the datasets by node and returns parts, or None
            if there is nothing to show.
        name: of the file, without its ending.
        title: heading.
        others: names of further nodes; those that the diagram does without are missing in `datasets`.
        optional: whether diagrams may do without the node.
    """

    node: str
    function: str
    name: str
    title: str
    others: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True)
class Part:
    """One figure or table of a panel; made by `plot`, `points` and `table`.

    Args:
        kind: `plot`, `points` or `table`.
        content: by kind.
        title: heading; empty for none.
        note: a sentence below it.
    """

    kind: str
    content: Mapping[str, Any]
    title: str = ""
    note: str = ""

    def document(self) -> dict[str, Any]:
        """As in the panel's JSON document."""
        return {"kind": self.kind, "title": self.title, "note": self.note, **self.content}


@dataclass(frozen=True)
class Links:
    """Neighbours of points, as sparse rows: those of point i are `ends[starts[i]:starts[i + 1]]`."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


@dataclass(frozen=True)
class Colouring:
    """One way to colour points: by kind (`kinds` names them, -1 in `codes` is none), or by a number.

    Args:
        name: shown in the list of colourings.
        kinds: names of the kinds, the most frequent first.
        codes: kind of each point.
        values: number of each point, instead of kinds.
    """

    name: str
    kinds: Sequence[str] = ()
    codes: NDArray[np.integer[Any]] | None = None
    values: NDArray[Any] | None = field(default=None)


def packed(values: Any) -> dict[str, str]:
    """An array in binary form, which Plotly reads in the place of a list: a quarter of its text."""
    import numpy as np  # commands declare panels, and draw none

    array = np.asarray(values)
    if array.dtype.kind in "iub":
        kind = "i4" if array.size == 0 or np.abs(array).max() < 2**31 else "f8"
    else:
        kind = "f8" if array.dtype == np.float64 and array.size < 10_000 else "f4"
    raw = np.ascontiguousarray(array, dtype=np.dtype(kind).newbyteorder("<")).tobytes()
    return {"dtype": kind, "bdata": base64.b64encode(raw).decode()}


def plot(
    traces: Sequence[Mapping[str, Any]], *, title: str = "", note: str = "", height: int = 300, **layout: Any
) -> Part:
    """A Plotly figure: its traces and what its layout has besides the page's own style."""
    return Part("plot", {"data": [dict(each) for each in traces], "height": height, "layout": layout}, title, note)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str = "", note: str = "") -> Part:
    """A table of texts and numbers; None is an empty cell."""
    kept = [list(row) for row in rows[:MOST_ROWS]]
    return Part("table", {"columns": list(columns), "rows": kept, "all": len(rows)}, title, note)


def points(
    x: NDArray[Any],
    y: NDArray[Any],
    names: Sequence[str],
    *,
    colourings: Sequence[Colouring] = (),
    links: Links | None = None,
    title: str = "",
    note: str = "",
) -> Part:
    """Named points in the plane: to zoom, to search by name, with their neighbours."""
    import numpy as np

    content: dict[str, Any] = {
        "x": packed(np.asarray(x, np.float32)), "y": packed(np.asarray(y, np.float32)), "names": list(names),
        "colourings": [_colouring(each) for each in colourings],
    }  # fmt: skip
    if links is not None:
        content["links"] = {"starts": packed(links.starts), "ends": packed(links.ends)}
    return Part("points", content, title, note)


def _colouring(given: Colouring) -> dict[str, Any]:
    import numpy as np

    if given.values is not None:
        return {"name": given.name, "values": packed(np.asarray(given.values, np.float32))}
    codes = given.codes if given.codes is not None else np.zeros(0, np.int64)
    return {"name": given.name, "kinds": list(given.kinds), "codes": packed(codes)}


def panel_document(panel: Panel, parts: Sequence[Part]) -> dict[str, Any]:
    """The JSON document of a panel."""
    return {"format": FORMAT, "name": panel.name, "title": panel.title, "parts": [each.document() for each in parts]}
