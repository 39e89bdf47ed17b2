"""Types of features' values, by the names that schemas have for them."""

from __future__ import annotations

from collections.abc import Mapping

STRING = "string"
"""The one type that is no number."""
DTYPES: Mapping[str, str] = {
    "float": "<f4", "double": "<f8", "half": "<f2", "bool": "|b1",
    "int8": "|i1", "int16": "<i2", "int32": "<i4", "int64": "<i8",
    "uint8": "|u1", "uint16": "<u2", "uint32": "<u4", "uint64": "<u8",
}  # fmt: skip
"""Types of numbers, as `.npy` files have them."""
FEATURES = "features"
"""Feature of nodes that is a matrix of all that a network reads of them, in graphs that name its columns."""
MISSING = ("", "na", "n/a", "nan", "null", "none", "<na>", "\\n")
"""Texts of missing values in tables, in lower case."""
FLOATS = ("float", "double", "half")
"""Those that are no whole numbers."""


def is_read(dtype: str, width: int) -> bool:
    """True if a network reads a feature of this type that has a fixed number of values.

    Floating-point numbers are, and vectors of whole numbers or truth values; one alone may be a label, an id or a code.
    """
    return width > 0 and (dtype in FLOATS or (dtype != STRING and width > 1))
