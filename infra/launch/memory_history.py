"""Memory that stages turned out to need, remembered in the store by stage and by what they were expected to need."""

from __future__ import annotations

import json
from dataclasses import dataclass

from superworkflow.infra.storage.location import Location

FOLDER = ".memory"


@dataclass(frozen=True)
class Sizing:
    """Memory sizes that sufficed, remembered in one store.

    One small file for each stage and each doubling of its estimate in bytes: `.memory/index-29.json`. Parameters change
    what a stage needs as much as its input does; the estimate knows both. Without one nothing is remembered.
    """

    root: Location

    def memory(self, stage: str, expected: int) -> int:
        """Bytes of memory with which this stage should start; 0 when nothing is remembered.

        A need that was seen with a smaller estimate counts as well.

        Args:
            stage: its name.
            expected: peak in bytes by its estimate; 0 when there is none.
        """
        largest = 0
        for name in self.root.join(FOLDER).walk_files() if expected > 0 else ():
            found, _, doubling = name.removesuffix(".json").rpartition("-")
            if found == stage and doubling.isdigit() and int(doubling) <= _doubling(expected):
                try:
                    largest = max(largest, int(json.loads(self.root.join(FOLDER, name).read_text())["memory_bytes"]))
                except (ValueError, KeyError, TypeError, FileNotFoundError):
                    continue  # an edited file counts as none
        return largest

    def remember(self, stage: str, expected: int, memory: int) -> None:
        """Keep that this much memory was enough, after the kernel had ended the stage for lack of memory with less."""
        if expected <= 0:
            return
        folder = self.root.join(FOLDER)
        folder.make()
        text = json.dumps({"memory_bytes": memory, "expected_bytes": expected})
        folder.join(f"{stage}-{_doubling(expected)}.json").write_atomic(text)


def _doubling(size: int) -> int:
    return size.bit_length() - 1
