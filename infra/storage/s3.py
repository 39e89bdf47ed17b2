"""S3 client with retries: requests without an answer, or with a server-side error, are sent again.

Single requests are retried, not whole files, so that a large upload or a listing continues where it was. Requests that
the server refuses (no right, no such bucket, a condition that does not hold) fail at once; requests to a server that
this process has never reached fail after a few seconds, since its address is probably wrong.

Servers differ in conditional writes. Ceph and those built on it find that no object has a tag that is in quotes, as
S3 gives it, and look at no condition when an upload in parts is completed; both are made up for here.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import botocore.exceptions  # type: ignore[import-untyped]
from aiobotocore.httpsession import AIOHTTPSession  # type: ignore[import-untyped]
from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]
from fsspec.asyn import sync_wrapper
from s3fs import S3FileSystem
from s3fs.core import _error_wrapper

from superworkflow.infra.storage import retry
from superworkflow.infra.storage.retry import Reachability, RetryState, Unreachable

FIRST_CONTACT_SECONDS = 5.0
"""Seconds of retries for a server that has never answered."""
QUIET_SECONDS = 30.0
"""Seconds without a byte of an answer after which a request counts as lost."""
HURRIED_SECONDS = 10.0
"""The same, and the seconds of retries, for calls that must not wait for the store."""
_TRANSIENT = (
    botocore.exceptions.HTTPClientError, botocore.exceptions.ConnectionError, botocore.exceptions.IncompleteReadError,
    ResponseParserError, aiohttp.ClientError, TimeoutError, ConnectionError,
)  # fmt: skip
_PERMANENT = (botocore.exceptions.SSLError, aiohttp.InvalidURL)
_TRANSIENT_CODES = {
    "SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "Throttling", "ThrottlingException",
    "RequestLimitExceeded", "TooManyRequests", "BandwidthLimitExceeded", "OperationAborted", "IncompleteBody",
    "XAmzContentSHA256Mismatch",
}  # fmt: skip
_REFUSED_CODES = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}

_servers: dict[str, Reachability] = {}
_bare_tags: set[str] = set()
"""Buckets whose server compares tags without their quotes."""


class _SendingOnce(AIOHTTPSession):  # type: ignore[misc]
    """HTTP sessions that leave it to us to send a request again.

    When a connection that was kept breaks, aiohttp sends the request over a new one without a word: a write that was
    done by then is refused, as if it were another's.
    """

    async def _get_session(self, proxy_url: str | None) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = await super()._get_session(proxy_url)
        session._retry_connection = False
        return session


class PatientS3(S3FileSystem):  # type: ignore[misc]
    """An S3 file system whose requests wait for the server.

    Args:
        patient: False to fail within seconds instead, for what is tried again later.
    """

    def __init__(self, *, patient: bool = True):
        quiet = QUIET_SECONDS if patient else HURRIED_SECONDS
        # No retries by the client itself: they would multiply with those here, and report nothing.
        config = {"connect_timeout": quiet, "read_timeout": quiet, "retries": {"max_attempts": 0}}
        config["http_session_cls"] = _SendingOnce
        super().__init__(use_listings_cache=False, config_kwargs=config)
        self.loop.set_exception_handler(_unheard)
        self._patient = patient

    async def _call_s3(self, method: str, *arguments: Any, **given: Any) -> Any:
        await self.set_session()
        call = getattr(await self.get_s3(given.get("Bucket")), method)
        values = self._get_s3_method_kwargs(call, *arguments, **given)
        if "IfMatch" in values and self.bucket_url(values["Bucket"]) in _bare_tags:
            values["IfMatch"] = values["IfMatch"].strip('"')
        try:
            return await self._send(method, call, values)
        except Exception as error:
            conditional = method == "put_object" and "IfMatch" in values and _condition_failed(error)
            if not conditional or await self._tag(values) != values["IfMatch"]:
                raise
        # Refused, though the object has that tag.
        answer = await self._send(method, call, values | {"IfMatch": values["IfMatch"].strip('"')})
        _bare_tags.add(self.bucket_url(values["Bucket"]))
        return answer

    call_s3 = sync_wrapper(_call_s3)

    async def _send(self, method: str, call: Callable[..., Any], values: dict[str, Any]) -> Any:
        async def create() -> Any:
            if await self._tag(values) is not None:
                raise FileExistsError(errno.EEXIST, "another wrote it", f"{values['Bucket']}/{values['Key']}")
            return await send()

        def send() -> Awaitable[Any]:
            return _error_wrapper(call, kwargs=values, retries=1)  # type: ignore[no-any-return]

        # A part that is left can be deleted later; what another has put there, a repeated deletion would take.
        once = method == "abort_multipart_upload" or (method == "delete_object" and "IfMatch" in values)
        look = method == "complete_multipart_upload" and "IfNoneMatch" in values
        return await self._patiently(
            create if look else send, 0.0 if once else None, lambda: self._landed(method, values)
        )

    async def _tag(self, values: dict[str, Any]) -> str | None:
        """Tag of the object that a request is about, None when there is none."""
        try:
            found = await self._call_s3("head_object", Bucket=values["Bucket"], Key=values["Key"])
        except FileNotFoundError:
            return None
        return str(found["ETag"])

    def bucket_url(self, bucket: str) -> str:
        """Server and bucket, once connected."""
        return f"{self._s3.meta.endpoint_url}/{bucket}"

    async def _cat_file(self, path: str, *arguments: Any, **given: Any) -> Any:
        work = super()._cat_file
        return await self._patiently(lambda: work(path, *arguments, **given))

    async def _get_file(self, rpath: str, lpath: str, *arguments: Any, **given: Any) -> None:
        work = super()._get_file  # the body of an answer may break off
        await self._patiently(lambda: work(rpath, lpath, *arguments, **given))

    async def _patiently(
        self,
        work: Callable[[], Awaitable[Any]],
        patience_s: float | None = None,
        landed: Callable[[], Awaitable[Any]] | None = None,
    ) -> Any:
        """Repeat `work` until the server answers.

        Args:
            work: sends the request.
            patience_s: seconds of retries; by default this file system's for this server.
            landed: called when the server refuses a write that may be done already; returns its answer, or None.

        Raises:
            Unreachable: no answer within that time.
        """
        tries: RetryState | None = None
        began = time.monotonic()
        while True:
            try:
                result = await work()
            except Exception as error:
                if not transient(error) or getattr(error, "given_up", False):
                    if _response(error) is not None:
                        self._server.answered()
                    if tries and landed and (refused(error) or isinstance(error, FileNotFoundError)):
                        answer = await landed()
                        if answer is not None:
                            return answer
                    _put_words(error)
                    raise
                seconds = self._patience(error) if patience_s is None else patience_s
                tries = tries or RetryState(seconds + began - time.monotonic())
                pause = tries.pause()
                if pause is None and seconds < retry.PATIENCE_SECONDS:
                    raise self._given_up(error) from error
                if pause is None:
                    raise Unreachable(
                        f"{self._server.what} has not answered for {seconds:.0f} s ({_words(error)}). Check that it "
                        "can be reached from here; complete stages are kept and will not run again."
                    ) from error
                if self._server.ever or retry.trusted:
                    self._server.failed(_words(error))
                await asyncio.sleep(pause)
            else:
                self._server.answered()
                return result

    @property
    def _server(self) -> Reachability:
        where = str(self._s3.meta.endpoint_url)
        return _servers.setdefault(where, Reachability(f"the store at {where}"))

    def _patience(self, error: Exception) -> float:
        if not self._patient:
            return HURRIED_SECONDS
        if self._server.ever or (retry.trusted and not _no_such_host(error)):
            return retry.PATIENCE_SECONDS
        return FIRST_CONTACT_SECONDS

    def _given_up(self, error: Exception) -> Exception:
        """Mark an error as final, in a type that s3fs does not retry."""
        if isinstance(error, botocore.exceptions.HTTPClientError):
            error = botocore.exceptions.EndpointConnectionError(endpoint_url=self._s3.meta.endpoint_url, error=error)
        error.given_up = True  # type: ignore[attr-defined]
        return error

    async def _landed(self, method: str, values: dict[str, Any]) -> dict[str, str] | None:
        """The answer to a write that succeeded although its own answer was lost."""
        if method == "put_object":
            tag = _md5(bytes(values["Body"]))
        elif method == "complete_multipart_upload":
            sums = [bytes.fromhex(part["ETag"].strip('"')) for part in values["MultipartUpload"]["Parts"]]
            tag = f"{_md5(b''.join(sums))}-{len(sums)}"
        else:
            return None
        found = await self._tag(values)
        return {"ETag": found} if found is not None and found.strip('"') == tag else None


def transient(error: BaseException) -> bool:
    """True if the same request may succeed later."""
    if (response := _response(error)) is not None:
        status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
        return _code(error) in _TRANSIENT_CODES or status == 429 or (status >= 500 and status not in (501, 505))
    return isinstance(error, _TRANSIENT) and not isinstance(error, _PERMANENT)


def refused(error: BaseException) -> bool:
    """True if the server refused a conditional write; not every server's answer becomes a FileExistsError."""
    return isinstance(error, FileExistsError) or _code(error) in _REFUSED_CODES


def _condition_failed(error: BaseException) -> bool:
    return _code(error) in {"PreconditionFailed", "412"}


def _unheard(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ignore the error of a task whose connection broke while it was sending: the request has its own."""
    if not isinstance(context.get("exception"), aiohttp.ClientError | ConnectionError):
        loop.default_exception_handler(context)


def _response(error: BaseException) -> dict[str, Any] | None:
    """Response of the server, where there was one."""
    for found in (error, error.__cause__):
        response = getattr(found, "response", None)
        if isinstance(response, dict):
            return response
    return None


def _code(error: BaseException) -> str:
    return str((_response(error) or {}).get("Error", {}).get("Code") or "")


def _no_such_host(error: BaseException) -> bool:
    inner = getattr(error, "kwargs", {}).get("error")
    cause = getattr(inner, "os_error", inner)
    return isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN


def _put_words(error: Exception) -> None:
    """Say what was refused by the server's code where it gave no message, as Ceph."""
    message = (_response(error) or {}).get("Error", {}).get("Message")
    if isinstance(error, OSError) and _code(error) and not message:
        error.strerror = _code(error)
        if error.errno is None:
            error.args = (_code(error),)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
