"""What sets of a heterograph are called in the names of stats."""

from __future__ import annotations

import re

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")


def stat_name(name: str, number: int) -> str:
    """A set's name where it is a plain word, else its number: names of sets may be any text."""
    return name if _PLAIN_NAME.fullmatch(name) else str(number)
