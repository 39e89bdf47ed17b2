"""Suggestions of the nearest valid name."""

from __future__ import annotations

import difflib


def nearest(name: str, valid: list[str], prefix: str = "") -> str:
    """`Did you mean …?` or the list of what is valid, for an error's remedy; `prefix` is shown before each name."""
    close = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    if close:
        return f"Did you mean {prefix}{close[0]}?"
    return f"Valid: {', '.join(prefix + each for each in sorted(valid)) or 'none'}"
