"""Passwords in URLs: what is printed or recorded shows `***` in their place."""

from __future__ import annotations

import logging
import re
import sys
import traceback
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit

HIDDEN = "***"

# Up to the last @ of the word: a password may hold any character that somebody forgot to escape.
_PASSWORD = re.compile(r"(?P<user>[a-zA-Z][\w+.-]*://[^\s\"<>/@:?#]*):[^\s\"<>]*@")
_TOKEN = re.compile(r"(?P<scheme>\bhttps?://)[^\s\"<>/@:?#]+@")
_IN_QUERY = re.compile(r"(?P<name>[?&;](?:\w*password|passwd|pwd|\w*token|\w*secret\w*|api_?key)=)[^\s\"<>&;#]+", re.I)


def masked(text: str) -> str:
    """The text with the passwords of all URLs in it hidden."""
    if "://" not in text:
        return text
    text = _PASSWORD.sub(rf"\g<user>:{HIDDEN}@", text)
    text = _TOKEN.sub(rf"\g<scheme>{HIDDEN}@", text)
    return _IN_QUERY.sub(rf"\g<name>{HIDDEN}", text)


def has_password(uri: str) -> bool:
    """True if a URL holds a password, or a token in the place of a user."""
    scheme, _, rest = uri.partition("://")
    user, separator, _ = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")
    return (bool(separator) and (":" in user or scheme in ("http", "https"))) or _IN_QUERY.search(uri) is not None


def without_user(uri: str) -> str:
    """A server's address as a link: without user and password."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def mask_log(name: str) -> None:
    """Hide passwords in what the handlers of this logger write, tracebacks included."""
    for handler in logging.getLogger(name).handlers:
        if _mask not in handler.filters:
            handler.addFilter(_mask)


def _mask(record: logging.LogRecord) -> bool:
    record.msg, record.args = masked(record.getMessage()), ()
    if record.exc_info and record.exc_info[0] is not None:
        record.exc_text = masked("".join(traceback.format_exception(*record.exc_info)).rstrip("\n"))
    return True


def mask_tracebacks() -> None:
    """Hide passwords in the traceback of an error that ends this process."""
    sys.excepthook = _print_masked


def _print_masked(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.stderr.write(masked("".join(traceback.format_exception(kind, error, trace))))
