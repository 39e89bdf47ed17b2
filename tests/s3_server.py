"""moto's S3 server, with conditional writes that are atomic, as S3's are: `python -m tests.s3_server PORT HOST`.

moto looks whether the condition holds and writes afterwards, so that of two who create one object at once both may
succeed. Here such requests come one at a time, after their bodies have arrived. In buckets of certain names the server
behaves as others do, or as one that cannot be used would (see `QUIRKS`).
"""

import io
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
from werkzeug.wsgi import get_input_stream

App = Callable[[dict[str, Any], Any], Iterable[bytes]]


def atomic(app: App) -> App:
    """The same application, whose writes to single objects come one at a time."""
    turn = threading.Lock()

    def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        conditional = "HTTP_IF_MATCH" in environ or "HTTP_IF_NONE_MATCH" in environ
        deletes = environ["REQUEST_METHOD"] == "DELETE" or "delete" in environ.get("QUERY_STRING", "")
        if environ["REQUEST_METHOD"] in ("GET", "HEAD") or not (conditional or deletes):
            return app(environ, start_response)
        body = get_input_stream(environ).read()
        environ |= {"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body)), "wsgi.input_terminated": True}
        with turn:
            return app(environ, start_response)

    return serve


def _ignores_if_none_match(environ: dict[str, Any]) -> bool:
    environ.pop("HTTP_IF_NONE_MATCH", None)
    return False


def _ignores_if_match(environ: dict[str, Any]) -> bool:
    environ.pop("HTTP_IF_MATCH", None)
    return False


def _refuses_if_match(environ: dict[str, Any]) -> bool:
    return "HTTP_IF_MATCH" in environ


def _looks_before(environ: dict[str, Any]) -> bool:
    """Finds nothing there when it looks for the first three who write at once."""
    with _looking:
        if "HTTP_IF_NONE_MATCH" in environ and len(creators := _creators.setdefault(environ["PATH_INFO"], [])) < 3:
            creators.append(environ.pop("HTTP_IF_NONE_MATCH"))
    return False


def _as_ceph(environ: dict[str, Any]) -> bool:
    """Finds that no object has a tag in quotes; ignores conditions of deletions and of the end of uploads in parts."""
    quoted = environ.get("HTTP_IF_MATCH", "").startswith('"')
    if environ["REQUEST_METHOD"] == "PUT":
        return quoted
    environ.pop("HTTP_IF_MATCH", None)
    environ.pop("HTTP_IF_NONE_MATCH", None)
    return False


QUIRKS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "ignores-if-none-match": _ignores_if_none_match,
    "ignores-if-match": _ignores_if_match,
    "refuses-if-match": _refuses_if_match,
    "looks-before": _looks_before,
    "as-ceph": _as_ceph,
}
"""By bucket: changes a request that writes, or says that its condition does not hold."""
_creators: dict[str, list[str]] = {}
_looking = threading.Lock()


def quirky(app: App) -> App:
    """The same application, with the quirks of other servers."""

    def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        quirk = QUIRKS.get(environ["PATH_INFO"].split("/")[1])
        if quirk is None or environ["REQUEST_METHOD"] in ("GET", "HEAD") or not quirk(environ):
            return app(environ, start_response)
        get_input_stream(environ).read()
        start_response("412 Precondition Failed", [("Content-Type", "application/xml")])
        return [b"<Error><Code>PreconditionFailed</Code></Error>"]

    return serve


if __name__ == "__main__":
    run_simple(
        sys.argv[2], int(sys.argv[1]), quirky(atomic(DomainDispatcherApplication(create_backend_app))), threaded=True
    )
