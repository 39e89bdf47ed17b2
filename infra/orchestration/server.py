"""Prefect's API: the one that `PREFECT_API_URL` names, else a temporary server of this process's own."""

from __future__ import annotations

import subprocess
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
from prefect.server.api.server import SubprocessASGIServer
from prefect.settings import get_current_settings

from infra.errors import UserError

REMEDY = "Start the server, correct PREFECT_API_URL, or unset it to run without one"

_guards: list[subprocess.Popen[bytes]] = []


def connect() -> Future[None]:
    """Begin to reach the API; takes seconds where a temporary server must start, so other work can go on meanwhile.

    Returns:
        A future whose `result()` raises UserError when the API cannot be reached.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="prefect-api")
    future = pool.submit(_connect)
    pool.shutdown(wait=False)
    return future


def _connect() -> None:
    url = get_current_settings().api.url
    if url is not None:
        try:
            httpx.get(f"{url.rstrip('/')}/health", timeout=20).raise_for_status()
        except httpx.HTTPError as error:
            raise UserError(f"Prefect cannot be reached: {error}", where=url, remedy=REMEDY) from None
        return
    server = SubprocessASGIServer()
    try:
        server.start()
    except RuntimeError as error:
        raise UserError(f"Prefect's temporary server did not start: {error}", where="PREFECT_HOME") from None
    if server.server_process is not None:
        _end_with_this_process(server.server_process.pid)


def _end_with_this_process(pid: int) -> None:
    """Prefect ends its temporary server when Python exits, which a killed process never does: a pipe notices that."""
    guard = subprocess.Popen(["sh", "-c", f"cat > /dev/null; kill {pid} 2> /dev/null"], stdin=subprocess.PIPE)
    _guards.append(guard)
