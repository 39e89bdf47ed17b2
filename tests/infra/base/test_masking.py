"""Passwords in URLs are not shown."""

import io
import logging

import pytest

from superworkflow.infra.base.errors import StagedUserError, StageFailed, UserError
from superworkflow.infra.base.masking import has_password, mask_log, masked, without_user
from superworkflow.infra.storage.location import Location


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:secret@db:5432/runs", "postgresql://me:***@db:5432/runs"),
        ("postgresql+psycopg://:secret@db/runs", "postgresql+psycopg://:***@db/runs"),
        ("http://me:s/e@c:ret@host/api is down", "http://me:***@host/api is down"),
        ("https://secret@host/path", "https://***@host/path"),
        ("postgresql://db/runs?user=me&password=secret&sslmode=off",
         "postgresql://db/runs?user=me&password=***&sslmode=off"),
        ('{"a": "redis://:secret@one", "b": "s3://u:secret@two"}', '{"a": "redis://:***@one", "b": "s3://u:***@two"}'),
        ("first http://me:secret@one then http://you:secret@two",
         "first http://me:***@one then http://you:***@two"),
    ],
)  # fmt: skip
def test_hidden(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert "secret" not in masked(text)


@pytest.mark.parametrize(
    "text",
    [
        "nothing here", "me:secret@db without a scheme", "postgresql://sweeper@db/runs", "http://host:4200/api",
        "s3://bucket/a:b@c", "models:/node2vec-embeddings@current", "sqlite:////store/mlflow.db",
        "registry:5000/cpu@sha256:1",
    ],
)  # fmt: skip
def test_left_as_it_is(text: str) -> None:
    assert masked(text) == text
    assert not has_password(text)


def test_what_is_used_as_a_file_name_is_no_password() -> None:
    assert not has_password("http://host:8080/data@v1/edges.csv")


def test_link() -> None:
    assert without_user("http://me:secret@host:5000/a?b=c#d") == "http://host:5000/a?b=c#d"


def test_errors_name_no_password() -> None:
    url = "http://me:secret@host/api"
    errors = [UserError("down", where=url, value=url), StagedUserError(f"{url}: down"), StageFailed("walk", url)]
    for error in errors:
        assert "secret" not in f"{error} {error!r} {error.args}"
        assert "http://me:***@host/api" in str(error)


@pytest.mark.parametrize("uri", ["https://me:secret@host/edges.csv", "ftp://me:secret@host/x", "s3://k:secret@bucket"])
def test_data_has_no_password_in_its_address(uri: str) -> None:
    with pytest.raises(UserError, match="the address of data must not contain a password") as raised:
        Location.of(uri)
    assert "secret" not in str(raised.value)


def test_log() -> None:
    stream = io.StringIO()
    logger = logging.getLogger("tests.masking")
    logger.propagate = False
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)
    mask_log("tests.masking")
    mask_log("tests.masking")
    assert len(handler.filters) == 1
    url = "http://me:secret@host"
    try:
        raise ValueError(f"no answer of {url}")
    except ValueError:
        logger.exception("asked %s", url)
    assert "secret" not in stream.getvalue()
    assert stream.getvalue().count("http://me:***@host") == 2
    assert "Traceback" in stream.getvalue()
