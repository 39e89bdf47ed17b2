"""moto's S3 server, with conditional writes that are atomic, as S3's are: `python -m tests.s3_server PORT HOST`.

moto looks whether the condition holds and writes afterwards, so that of two who create one object at once both may
succeed. Here such requests come one at a time, after their bodies have arrived.
"""

from __future__ import annotations

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


if __name__ == "__main__":
    run_simple(sys.argv[2], int(sys.argv[1]), atomic(DomainDispatcherApplication(create_backend_app)), threaded=True)
