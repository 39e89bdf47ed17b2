"""Memory that stages turned out to need, remembered in the store by stage and size of input."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from infra.filesystem import Location

FOLDER = ".sizing"


@dataclass(frozen=True)
class Sizing:
    """What is remembered in one store.

    One small file for each stage and each doubling of its input's bytes: `.sizing/walk-24.json`.
    """

    root: Location

    def memory(self, stage: str, input_bytes: int) -> int:
        """Bytes of memory with which this stage should start on such an input; 0 when nothing is known.

        What a smaller input needed, a larger one needs as well.
        """
        known = 0
        for name in self._files():
            found, _, size = name.removesuffix(".json").rpartition("-")
            if found == stage and size.isdigit() and int(size) <= _doubling(input_bytes):
                try:
                    known = max(known, int(json.loads(self.root.join(FOLDER, name).read_text())["memory_bytes"]))
                except (ValueError, KeyError, TypeError, FileNotFoundError):
                    continue  # a file that somebody edited is worth no more than none
        return known

    def remember(self, stage: str, input_bytes: int, memory: int) -> None:
        """Keep that this much memory was enough, after less was not."""
        folder = self.root.join(FOLDER)
        folder.make()
        text = json.dumps({"memory_bytes": memory, "input_bytes": input_bytes})
        folder.join(f"{stage}-{_doubling(input_bytes)}.json").write_atomic(text)

    def _files(self) -> list[str]:
        return [name for name in self.root.join(FOLDER).walk_files() if "/" not in name]


def _doubling(size: int) -> int:
    return int(math.log2(size)) if size > 0 else 0
