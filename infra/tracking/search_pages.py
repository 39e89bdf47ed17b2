"""Searches of MLflow, which answers them by the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def all_pages(page: Callable[[str | None], Any]) -> Iterator[Any]:
    """Entities of all pages that a search has; `page` gives the one of a token, the first of None."""
    token = None
    while True:
        part = page(token)
        yield from part
        if not (token := part.token):
            return
