"""Size of the store, for pages: measured in the background, since listing a large store takes minutes."""

from __future__ import annotations

import threading
import time

from superworkflow.infra.config.prices import load_prices
from superworkflow.infra.storage.pruning import inventory
from superworkflow.infra.storage.store import Store

FRESH_SECONDS = 900.0
"""Age of a size beyond which it is measured again; a hundred times the time of measuring if that is longer."""


class StorageSize:
    """Bytes of a store and their price, as they were measured last.

    Args:
        uri: of the store.
    """

    def __init__(self, uri: str):
        self._uri, self._turn = uri, threading.Lock()
        self._bytes: int | None = None
        self._until = float("-inf")

    def read(self, wait_s: float = 0.3) -> tuple[int, float] | None:
        """Bytes, and USD for a month; None while they are being measured for the first time, or if they cannot be.

        Args:
            wait_s: seconds to wait for a first size.
        """
        if time.monotonic() > self._until and self._turn.acquire(blocking=False):
            thread = threading.Thread(target=self._measure, name="storage-size", daemon=True)
            thread.start()
            if self._bytes is None:
                thread.join(wait_s)
        return None if self._bytes is None else (self._bytes, load_prices().storage_cost(self._bytes))

    def _measure(self) -> None:
        began = time.monotonic()
        try:
            self._bytes = inventory(Store(self._uri)).bytes
        except Exception:  # of the store's client; pages say that the size is unknown
            self._bytes = None
        finally:
            now = time.monotonic()
            self._until = now + max(FRESH_SECONDS, 100 * (now - began))
            self._turn.release()
