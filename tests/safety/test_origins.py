"""The origin of a URL."""

import pytest

from prompty.safety.origins import Origin, parse_origin


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1",
        "http://a:99999/",
        "http://a:b/",
        "ftp://a/",
        "http://a@b@c/",
        "http://a b/",
        "http://\u0430/",
        "a/b",
    ],
)
def test_a_url_that_parsers_may_read_differently_has_no_origin(url: str) -> None:
    assert parse_origin(url) is None


def test_an_origin_is_the_scheme_the_host_and_the_port() -> None:
    assert parse_origin("HTTPS://Models.Example./v1?x#y") == Origin("https", "models.example", 443)
    assert str(parse_origin("http://[::1]:8000/v1")) == "http://[::1]:8000"
