"""Style of all pictures: colours, layout, file format. Imports Matplotlib; for modules that draw."""

from __future__ import annotations

import warnings
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

COLOURS = (
    "#4269d0", "#ff725c", "#3ca951", "#efb118", "#a463f2", "#6cc5b0",
    "#ff8ab7", "#9c6b4e", "#97bbf5", "#7a7a2f", "#c2185b", "#00838f",
)  # fmt: skip
"""Colours of distinct kinds."""
GREY, INK, FAINT = "#c9ccd1", "#24292f", "#6e7781"
DPI = 130


def plain(text: str) -> str:
    """Dollar signs as they are, not as the start of a formula."""
    return text.replace("$", r"\$")


def layout() -> ConstrainedLayoutEngine:
    """The margins."""
    return ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)


def save(figure: Figure, path: str | Path) -> None:
    """Write a PNG, without what differs from one machine to another."""
    FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        # A label in a script that no font of this machine has is drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(path, format="png", metadata={"Software": None})
