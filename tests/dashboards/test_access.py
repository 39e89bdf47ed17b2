"""Access to the dashboard's pages."""

import base64
from collections.abc import Iterable
from typing import Any

import pytest

from superworkflow.dashboards.web.access import Access
from superworkflow.infra.base.errors import UserError


def _ask(access: Access, path: str = "/", **headers: str) -> tuple[str, str]:
    """Status of an answer, and the path that the application saw."""
    seen: list[str] = []

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        seen.append(environ["PATH_INFO"])
        return [b""]

    list(access.guard(app)({"PATH_INFO": path, **headers}, lambda status, headers: seen.insert(0, status)))
    return seen[0], seen[1] if len(seen) > 1 else ""


def _basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("given", ["", "Basic", "Basic !", _basic("p:w"), _basic("any:wrong"), "Bearer " + "cDp3"])
def test_a_password_is_needed(given: str) -> None:
    assert _ask(Access(password="p:w"), HTTP_AUTHORIZATION=given)[0].startswith("401")


def test_any_user_name_will_do() -> None:
    assert _ask(Access(password="p:wü"), HTTP_AUTHORIZATION=_basic("bob:p:wü")) == ("200 OK", "/")


def test_a_proxy_names_the_user() -> None:
    access = Access(header="X-Forwarded-User")
    assert access.is_guarded
    assert _ask(access)[0].startswith("401")
    assert _ask(access, HTTP_X_FORWARDED_USER=" ")[0].startswith("401")
    assert _ask(access, HTTP_X_FORWARDED_USER="bob") == ("200 OK", "/")


def test_a_prefix_is_taken_off_and_put_before_links() -> None:
    access = Access(prefix="/sw")
    assert [_ask(access, path)[1] for path in ("/sw/run/1", "/sw", "/run/1", "/swim")] == [
        "/run/1",
        "/",
        "/run/1",
        "/swim",
    ]
    page = b'<a href="/run/1">a</a> <a href="//host/">b</a> <img src="/x.svg"> <a href="https://c/">c</a>'
    assert access.linked(page).count(b'="/sw/') == 2
    assert Access().linked(page) == page


def test_what_is_no_prefix_or_header_is_refused() -> None:
    for given in ({"prefix": "sw"}, {"prefix": '/"x'}, {"header": "X Y"}):
        with pytest.raises(UserError):
            Access(**given)
