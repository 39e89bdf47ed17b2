"""Calls to a URL: the form of `calls` for those who have functions, and the server of such a URL.

A request's body is the length of a header, the header as JSON, and the bytes of the shared arrays and of the call's
own; the answer's the same without shared ones. Both are signed with a token that caller and endpoint hold: a signature
is good for its call alone, until the moment that the header names. Encryption is the URL's (`https`). The endpoint
keeps nothing, so that any number of them may serve one URL.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import struct
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.engines.workers.arrays import Arrays, packed, unpacked
from superworkflow.infra.engines.workers.call_executor import ARRAYS, LIVE, SHARED, VERSION, CallExecutor, Shared
from superworkflow.infra.engines.workers.errors import WorkersFailed

TOKEN_VARIABLE = "SUPERWORKFLOW_FUNCTION_TOKEN"
SIGNATURE = "X-Superworkflow-Signature"
BODY_BYTES = 64 << 20
"""Most bytes of a body."""
_CALL_SECONDS = 60
"""How long a signature is good, and how long an answer is waited for."""
_LENGTH = struct.Struct(">I")
_FAILURES, _PAUSE_SECONDS = 3, 5.0
"""Failed requests in a row after which nobody is there, and how long until the URL is tried again."""
_LISTEN_SECONDS = 0.2


def token_of_environment() -> bytes:
    """The token.

    Raises:
        UserError: the environment has none, or a short one.
    """
    token = os.environ.get(TOKEN_VARIABLE, "")
    if len(token) < 32:
        raise UserError("calls to a URL are signed, and there is no token of 32 characters or more",
                        where=TOKEN_VARIABLE, value=f"{len(token)} characters",
                        remedy="Give caller and endpoint the same secret, such as `openssl rand -hex 32`")  # fmt: skip
    return token.encode()


def _body(header: Mapping[str, Any], payload: bytes) -> bytes:
    text = json.dumps(header).encode()
    return _LENGTH.pack(len(text)) + text + payload


def _parts(body: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and payload.

    Raises:
        ValueError: not a body.
    """
    if len(body) < _LENGTH.size:
        raise ValueError("no length of a header")
    (length,) = _LENGTH.unpack_from(body)
    found = json.loads(body[_LENGTH.size : _LENGTH.size + length])
    if not isinstance(found, dict):
        raise ValueError("the header is no object")
    return found, body[_LENGTH.size + length :]


def _signature(token: bytes, purpose: bytes, body: bytes) -> str:
    return hmac.new(token, purpose + body, "sha256").hexdigest()


def answer_of(function: str, token: bytes, body: bytes, signature: str) -> tuple[HTTPStatus, bytes, str]:
    """Status, body and signature with which an endpoint answers a request; for any framework of HTTP.

    Args:
        function: import string of what the endpoint executes, whatever the request names.
        token: of caller and endpoint.
        body, signature: of the request.
    """
    if not hmac.compare_digest(_signature(token, b"call", body), signature):
        return HTTPStatus.FORBIDDEN, b"", ""
    try:
        header, payload = _parts(body)
        if float(header["expires"]) < time.time():
            return HTTPStatus.FORBIDDEN, b"", ""
        answer, data = CallExecutor().execute({**header, "function": function}, payload)
    except (KeyError, TypeError, ValueError):
        return HTTPStatus.BAD_REQUEST, b"", ""
    out = _body(answer, data)
    return HTTPStatus.OK, out, _signature(token, signature.encode(), out)


def endpoint(function: str, token: bytes, host: str = "127.0.0.1", port: int = 0) -> ThreadingHTTPServer:
    """A server of one function; `serve_forever` begins.

    Args:
        function: import string of an `ArrayFunction`.
        token: of caller and endpoint.
        host, port: where it listens; at any port when 0.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = _CALL_SECONDS

        def do_POST(self) -> None:
            given = self.headers.get("Content-Length") or "0"
            length = int(given) if given.isdecimal() else BODY_BYTES + 1
            status, out, signature = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, b"", ""
            if length <= BODY_BYTES:
                body = self.rfile.read(length)
                status, out, signature = answer_of(function, token, body, self.headers.get(SIGNATURE, ""))
            with contextlib.suppress(OSError):  # the caller has had its answer from another
                self.send_response(status)
                self.send_header(SIGNATURE, signature)
                self.send_header("Content-Length", str(len(out)))
                self.end_headers()
                self.wfile.write(out)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return ThreadingHTTPServer((host, port), Handler)


def serve(arguments: Sequence[str]) -> int:
    """The command of an endpoint's image: serve the function of this import string on port $PORT, 8080 by default."""
    if len(arguments) != 1 or ":" not in arguments[0]:
        raise UserError("an endpoint serves one function", where="superworkflow function", value=" ".join(arguments),
                        remedy="Write superworkflow function MODULE:FUNCTION")  # fmt: skip
    port = int(os.environ.get("PORT", "8080"))
    with endpoint(arguments[0], token_of_environment(), "0.0.0.0", port) as server:
        server.serve_forever()
    return 0


class _Request:
    """An attempt of a call."""

    def __init__(self, body: bytes):
        self.body, self.done, self.begun, self.ended, self.member = body, False, 0.0, 0.0, -1
        self.answer: tuple[dict[str, Any], bytes] | None = None
        self.fault = ""

    def result(self) -> tuple[list[NDArray[Any]], float]:
        if self.answer is None:
            raise WorkersFailed(self.fault)
        header, payload = self.answer
        if header.get("kind") != "result":
            raise WorkersFailed(f"the endpoint failed: {header.get('message')}")
        try:
            return unpacked(header.get(ARRAYS), payload), float(header.get("seconds", 0.0))
        except ValueError as error:
            raise WorkersFailed(f"the endpoint answered badly: {error}") from None


class HttpEndpoint:
    """`calls.Transport` to a URL.

    Args:
        url: of the endpoint.
        token: of caller and endpoint.
        most: requests at once.
    """

    def __init__(self, url: str, token: bytes, most: int):
        self._url, self._token, self._size, self._most = url, token, most, most
        self._threads = ThreadPoolExecutor(most, "request")
        self._slots = list(range(most))
        self._waiting: deque[_Request] = deque()
        self._running: set[_Request] = set()
        self._woken, self._guard = threading.Event(), threading.Lock()
        self._failures, self._failed = 0, 0.0
        self._sent = self._received = self._started = 0

    def send(self, facts: Mapping[str, Any], shared: Shared, arrays: Arrays) -> _Request:
        (kept, first), (forms, second) = packed(shared.arrays), packed(arrays)
        header = {
            "call": 0, "arguments": [dict(facts)], ARRAYS: forms, SHARED: kept, VERSION: shared.version,
            LIVE: [shared.version], "expires": time.time() + _CALL_SECONDS,
        }  # fmt: skip
        request = _Request(_body(header, first + second))
        self._waiting.append(request)
        self._start()
        return request

    def withdraw(self, attempt: Any) -> None:
        attempt.done = True

    def listen(self) -> None:
        self._woken.wait(_LISTEN_SECONDS)
        self._woken.clear()
        self._start()

    def wake(self) -> None:
        self._woken.set()

    def scale(self, count: int) -> None:
        self._size = max(1, min(count, self._most))

    def free(self, limit: float) -> int:
        if self._failures >= _FAILURES and time.monotonic() - self._failed < _PAUSE_SECONDS:
            return 0
        with self._guard:
            late = sum(time.monotonic() - each.begun > limit for each in self._running)
        return self._size - late

    def counts(self) -> Mapping[str, float]:
        return {"present": self._size, "started": self._started, "bytes_sent": self._sent,
                "bytes_received": self._received}  # fmt: skip

    def close(self) -> None:
        """Wait for no request any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        """Send what waits, as far as there are slots."""
        with self._guard:
            while self._waiting and len(self._running) < self._size and self._slots:
                request = self._waiting.popleft()
                if not request.done:
                    request.begun, request.member = time.monotonic(), self._slots.pop(0)
                    self._running.add(request)
                    self._threads.submit(self._post, request)

    def _post(self, request: _Request) -> None:
        signature = _signature(self._token, b"call", request.body)
        answer, fault = None, ""
        try:
            asking = urllib.request.Request(self._url, request.body, {SIGNATURE: signature}, method="POST")
            with urllib.request.urlopen(asking, timeout=_CALL_SECONDS) as response:
                out, signed = response.read(BODY_BYTES + 1), response.headers.get(SIGNATURE, "")
            if not hmac.compare_digest(_signature(self._token, signature.encode(), out), signed):
                raise ValueError("the answer is not signed with the token")
            answer = _parts(out)
            self._received += len(out)
        except (OSError, ValueError) as error:
            fault = f"{self._url}: {error}"
        with self._guard:
            self._sent += len(request.body)
            self._running.discard(request)
            self._slots.append(request.member)
            self._failures = 0 if answer is not None else self._failures + 1
            self._failed = time.monotonic()
            if not request.done:
                request.answer, request.fault, request.ended, request.done = answer, fault, time.monotonic(), True
        self._woken.set()
