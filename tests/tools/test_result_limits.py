"""How long the result of a tool may be, in all its parts together."""

import json
from collections.abc import Sequence

import pytest

from prompty import ToolCall
from prompty.messages import TextPart
from prompty.model.content import ContentPart, ImagePart
from prompty.tools import calls
from prompty.tools.calls import result_message

CALL = ToolCall(id="c", name="t", arguments="{}")


def lengths(parts: Sequence[ContentPart]) -> list[int]:
    return [len(part.value) for part in result_message(CALL, parts).content]


def test_the_parts_of_a_result_are_counted_together() -> None:
    message = result_message(CALL, [TextPart("x" * 500_000)] * 60)
    assert len(message.text) < 500_100
    assert message.text.endswith("[29500000 more characters were omitted]")


@pytest.mark.parametrize(
    "value", ["x" * 600_000, ["x" * 600_000], TextPart("x" * 600_000)], ids=["text", "list", "part"]
)
def test_a_long_result_is_cut(value: object) -> None:
    text = result_message(CALL, value).text
    assert 500_000 <= len(text) < 500_100
    assert "more characters were omitted]" in text


def test_a_short_result_is_as_it_was() -> None:
    parts = [TextPart("a"), ImagePart("aW1hZ2U=", "image/png"), TextPart("")]
    assert list(result_message(CALL, parts).content) == parts


def test_a_cut_falls_where_the_limit_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_RESULT_LENGTH", 5)
    parts = result_message(CALL, [TextPart("abc"), TextPart("def"), ImagePart("i", "image/png"), TextPart("g")]).content
    assert [part.value for part in parts] == ["abc", "de", "i", "[2 more characters were omitted]"]


def test_texts_and_media_in_one_list_are_parts() -> None:
    image = ImagePart("aW1hZ2U=", "image/png")
    assert list(result_message(CALL, ["see", image, TextPart("it")]).content) == [
        TextPart("see"),
        image,
        TextPart("it"),
    ]


@pytest.mark.parametrize("value", [["a", "b"], ["a", 1], [], [{"image": ImagePart("i", "image/png").value}]])
def test_a_list_of_plain_data_stays_json(value: list[object]) -> None:
    [part] = result_message(CALL, value).content
    assert json.loads(part.value) == value


def test_media_and_the_number_of_parts_have_limits_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_MEDIA_LENGTH", 5)
    monkeypatch.setattr(calls, "MAX_RESULT_PARTS", 3)
    images = [ImagePart("123", "image/png")] * 3
    assert result_message(CALL, images).text == "[2 more images, recordings or files were omitted]"
    assert lengths([TextPart("a")] * 10_000) == [1, 1, 1, len("[9997 more characters were omitted]")]
