"""Prefect's API: the one that `PREFECT_API_URL` names, else a temporary server of this process's own."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import prefect
from prefect.context import refresh_global_settings_context
from prefect.settings import get_current_settings

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.masking import without_user
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.lock import exclusive

_START_SECONDS = 120.0
"""Least time for a temporary server to start; Prefect's 20 s are too few on a busy machine."""
REMEDY = "Start the server, correct PREFECT_API_URL, or unset it to run without one"

_guards: list[subprocess.Popen[bytes]] = []


def connect() -> Future[None]:
    """Connect to the API in the background: a temporary server takes seconds to start.

    Returns:
        A future whose `result()` raises UserError when the API cannot be reached.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="prefect-api")
    future = pool.submit(_connect)
    pool.shutdown(wait=False)
    return future


def ask_once() -> None:
    """Stop retrying requests: a run that a signal ends must not wait for a server that the signal may have ended."""
    get_current_settings().client.max_retries = 0


def page(path: str) -> str:
    """Address of one of the server's pages; empty where the server is a temporary one, which has none."""
    settings = get_current_settings()
    if _guards or not settings.api.url:
        return ""
    return f"{without_user(str(settings.ui_url or settings.api.url)).rstrip('/')}/{path}"


def api_url() -> str:
    """The API that is named, also after Prefect was imported, as a notebook does; empty where none is."""
    url = get_current_settings().api.url
    named = os.environ.get("PREFECT_API_URL")
    if named and named != url:
        refresh_global_settings_context()
        url = get_current_settings().api.url
    return url or ""


def _connect() -> None:
    url = api_url()
    if url:  # set and empty means unset
        try:
            httpx.get(f"{url.rstrip('/')}/health", timeout=20).raise_for_status()
        except httpx.HTTPError as error:
            raise UserError(f"Prefect cannot be reached: {error}", where=url, remedy=REMEDY) from None
        return
    os.environ["PREFECT_API_URL"] = _start_server()
    refresh_global_settings_context()
    del os.environ["PREFECT_API_URL"]  # other processes have servers of their own


def _start_server() -> str:
    """URL of the API of a temporary server, which is up.

    Prefect would start one by itself where no URL is set, but imports all of the server's modules in this process for
    that: two CPU seconds, as long as all else that a run imports of Prefect.
    """
    with _making_tables():
        return _start()


@contextlib.contextmanager
def _making_tables() -> Iterator[None]:
    """Hold a lock while the server makes its database: two that do it at once both fail.

    A file next to the database records that this version of Prefect has made or upgraded it; later servers then start
    without the lock.
    """
    from sqlalchemy.engine import make_url  # a tenth of what a run imports, where it has servers

    settings = get_current_settings()
    given = settings.server.database.connection_url
    url = make_url(given.get_secret_value()) if given is not None else None
    path = settings.home / "prefect.db"
    if url is not None and url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:"):
        path = Path(str(url.database))
    mark = path.with_name(f".{path.name}.made")

    def made() -> str:
        with contextlib.suppress(OSError):
            return f"{prefect.__version__} {path.stat().st_ino}"
        return prefect.__version__

    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        if mark.read_text() == made():
            yield
            return
    with exclusive(Location.of(path)):
        yield
        mark.write_text(made())


def _start() -> str:
    settings = get_current_settings()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = str(Path(prefect.__file__).parent)
    command = [sys.executable, "-m", "uvicorn", "--app-dir", folder, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--factory", "prefect.server.api.server:create_app", "--lifespan", "on", "--log-level", "error"]
    temporary = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
    environment = os.environ | temporary | settings.to_environment_variables(exclude_unset=True)
    # A session of its own: Ctrl-C at the terminal is for the run, which still has to report its end to the server.
    server = subprocess.Popen(command, env=environment, start_new_session=True)
    _end_with_this_process(server.pid)
    atexit.register(_stop, server)
    seconds = max(_START_SECONDS, settings.server.ephemeral.startup_timeout_seconds)
    url, latest = f"http://127.0.0.1:{port}/api", time.monotonic() + seconds
    with httpx.Client(timeout=20) as client:
        while server.poll() is None and time.monotonic() < latest:
            with contextlib.suppress(httpx.TransportError):
                if client.get(f"{url}/health").is_success:
                    return url
            time.sleep(0.05)
    _stop(server)
    raise UserError(
        f"Prefect's temporary server did not start (exit status {server.returncode})", where="PREFECT_HOME",
        remedy="See its output above, or name a running server in PREFECT_API_URL",
    )  # fmt: skip


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(timeout=5)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):  # a second Ctrl-C does not want to wait for it
        server.kill()
        server.wait()


def _end_with_this_process(pid: int) -> None:
    """End the temporary server when this process is killed: a guard process waits for the end of a pipe."""
    alive = f"kill -0 {pid} 2> /dev/null"
    script = f"cat > /dev/null; {alive} || exit; kill {pid}; for _ in 1 2 3 4 5; do sleep 1; {alive} || exit; done; "
    guard = subprocess.Popen(["sh", "-c", f"{script}kill -9 {pid}"], stdin=subprocess.PIPE, start_new_session=True)
    _guards.append(guard)
