"""Values in memory that are several tables, with a description that names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Described:
    """Tables, and what describes them once they are files.

    Args:
        tables: frames, or columns by name, by the file's name.
        describe: makes a description of the files in a folder: its name there, and its text.
    """

    tables: Mapping[str, Any]
    describe: Callable[[Path], tuple[str, str]]
