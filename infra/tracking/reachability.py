"""Check that a tracking server is up, before its client, which would wait for one that restarts."""

from __future__ import annotations

import requests


def check_listens(uri: str) -> None:
    """Raise where no server listens; its answers are left to the client."""
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
