"""Names of the edge sets of relations."""

from __future__ import annotations

import re

REVERSE = "reverse_"
"""Beginning of the name of the edge set that reverses a relation's."""


def safe_names(relations: list[str]) -> dict[str, str]:
    """Name of the edge set of each relation: letters, digits and `_`, each once."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for relation in relations:
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", relation).strip("_") or "relation"
        name, number = plain, 1
        while name in taken or f"{REVERSE}{name}" in taken:
            number += 1
            name = f"{plain}_{number}"
        taken |= {name, f"{REVERSE}{name}"}
        names[relation] = name
    return names
