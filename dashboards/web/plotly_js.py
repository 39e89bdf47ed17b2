"""Plotly's script from the installed package, so that pages fetch nothing from other hosts."""

from __future__ import annotations

import base64
import functools
import gzip


@functools.cache
def plotly_js() -> bytes:
    """The script as pages of the dashboard load it."""
    from plotly.offline import get_plotlyjs

    text: str = get_plotlyjs()
    return text.encode()


@functools.cache
def packed_plotly_js() -> str:
    """The script, compressed and in Base64: a third of its size, for single-file pages."""
    return base64.b64encode(gzip.compress(plotly_js(), 9, mtime=0)).decode()
