"""A body comes out as it was put in, however it is cut; whatever is not one is an error of ours."""

import contextlib
import gzip
import zlib

import pytest
from hypothesis import given, settings, strategies as st

from prompty.errors import ModelError
from prompty.providers.http.client import Body
from tests.soak import SOAK

EXAMPLES = 20_000 if SOAK else 200
CUTS = st.lists(st.integers(0, 5000), max_size=8)


def read(encoding: str, content: bytes, cuts: list[int], limit: int | None = None) -> bytes:
    """What comes out of a body that comes in pieces."""
    body = Body(encoding) if limit is None else Body(encoding, limit)
    ends = [*sorted(cut % (len(content) + 1) for cut in cuts), len(content)]
    pieces = [content[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    found = b"".join(part for piece in pieces for part in body.feed(piece))
    body.finish()
    return found


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=4000), st.sampled_from(["", "identity", "gzip", "x-gzip"]), CUTS)
def test_a_body_comes_out_as_it_was_put_in(content: bytes, encoding: str, cuts: list[int]) -> None:
    sent = gzip.compress(content) if "gzip" in encoding else content
    assert read(encoding, sent, cuts) == content


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=4000), st.binary(max_size=200), st.integers(0, 4000), CUTS)
def test_a_damaged_body_is_an_error_of_ours(content: bytes, damage: bytes, place: int, cuts: list[int]) -> None:
    packed = gzip.compress(content)
    at = place % (len(packed) + 1)
    with contextlib.suppress(ModelError):
        read("gzip", packed[:at] + damage + packed[at + len(damage) :], cuts)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.text(max_size=30), st.binary(max_size=200))
def test_an_encoding_is_known_or_refused(encoding: str, content: bytes) -> None:
    with contextlib.suppress(ModelError):
        read(encoding, content, [])


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 3000), st.sampled_from(["", "gzip"]), CUTS)
def test_no_more_than_the_limit_comes_out(length: int, encoding: str, cuts: list[int]) -> None:
    content = b"x" * length
    sent = gzip.compress(content) if encoding else content
    if length <= 1000:
        assert read(encoding, sent, cuts, 1000) == content
    else:
        with pytest.raises(ModelError, match="longer"):
            read(encoding, sent, cuts, 1000)


def test_a_body_that_unpacks_to_much_gives_it_in_small_pieces() -> None:
    packed = zlib.compressobj(wbits=31)
    bomb = packed.compress(b"0" * 10_000_000) + packed.flush()
    assert max(map(len, Body("gzip").feed(bomb))) <= 256 * 1024
