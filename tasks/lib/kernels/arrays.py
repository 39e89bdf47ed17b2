"""Read-only views of arrays."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written to, as mapped files are: kernels are compiled for such inputs alone."""
    view = array.view()
    view.flags.writeable = False
    return view
