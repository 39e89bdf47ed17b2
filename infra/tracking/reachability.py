"""True if a tracking server is there at all, asked before its client does, which waits for one that starts anew."""

from __future__ import annotations

import requests


def check_listens(uri: str) -> None:
    """Raise where no server is there at all; whatever it answers is left to the client."""
    if not uri.startswith(("http://", "https://")):
        return
    for left in (1, 0):
        try:
            requests.get(f"{uri.rstrip('/')}/health", timeout=20, stream=True).close()
        except requests.exceptions.SSLError:  # the client knows which certificates to trust
            return
        except (requests.exceptions.ConnectionError, requests.exceptions.Timeout):
            if not left:
                raise
        else:
            return
