"""Access to the dashboard: a password, a header of a proxy that has authenticated the user, a prefix of addresses."""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from superworkflow.infra.base.errors import UserError

App = Callable[[dict[str, Any], Any], Iterable[bytes]]
PASSWORD = "SUPERWORKFLOW_DASHBOARD_PASSWORD"
"""Variable with the password; it is on no command line, which other users of a machine see."""
HEALTH = "/health"
"""Address that shows nothing and that anyone may ask, for checks that the server is up."""
_LINK = re.compile(rb'(\b(?:href|src|action)=")/(?!/)')
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]*")


@dataclass(frozen=True)
class Access:
    """Conditions under which pages are shown.

    Args:
        password: that browsers ask for, with any user name; empty for none.
        header: that a proxy sets to the user's name; requests without it are refused. Empty for none.
        prefix: of all addresses, such as `/superworkflow`; empty for none.

    Raises:
        UserError: a prefix or header that is none.
    """

    password: str = ""
    header: str = ""
    prefix: str = ""

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            raise UserError("not a prefix of addresses", where="--prefix", value=self.prefix,
                            remedy="Write one such as /superworkflow")  # fmt: skip
        if self.header and not _HEADER.fullmatch(self.header):
            raise UserError("not the name of a header", where="--user-header", value=self.header,
                            remedy="Write one such as X-Forwarded-User")  # fmt: skip

    @property
    def is_guarded(self) -> bool:
        """True if anonymous requests are refused."""
        return bool(self.password or self.header)

    def guard(self, app: App) -> App:
        """The same application, behind these conditions."""

        def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            path = environ.get("PATH_INFO", "")
            if path == HEALTH:
                start_response("200 OK", [("Content-Type", "text/plain")])
                return [b"ok\n"]
            if not self._admits(environ):
                asks = [("WWW-Authenticate", 'Basic realm="Superworkflow", charset="UTF-8"')] if self.password else []
                start_response("401 Unauthorized", [("Content-Type", "text/plain; charset=utf-8"), *asks])
                return [b"The dashboard needs a password.\n" if self.password else b"Sign in at the proxy first.\n"]
            if self.prefix and (path == self.prefix or path.startswith(f"{self.prefix}/")):  # not stripped by a proxy
                environ["PATH_INFO"] = path.removeprefix(self.prefix) or "/"
            return app(environ, start_response)

        return serve

    def linked(self, page: bytes) -> bytes:
        """A page whose links begin with the prefix."""
        return _LINK.sub(rb"\1" + self.prefix.encode() + rb"/", page) if self.prefix else page

    def _admits(self, environ: dict[str, Any]) -> bool:
        if self.header and not environ.get(f"HTTP_{self.header.upper().replace('-', '_')}", "").strip():
            return False
        if not self.password:
            return True
        kind, _, encoded = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        try:
            given = base64.b64decode(encoded, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return False
        return kind.lower() == "basic" and hmac.compare_digest(given, self.password.encode())
