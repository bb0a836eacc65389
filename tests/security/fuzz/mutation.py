"""Changes to texts, bytes and JSON values, by the dice."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

MAX_LENGTH = 6_000
LARGE = 40_000
DEEP = 1_500  # deeper than Python's stack

NASTY_TEXTS = (
    *("", " ", "x", "\0", "\x07", "\x1b[2J", "\x7f", "\x85", "\u2028", "\u202e", "\ufeff", "\ud800", "\udfff\ud800"),
    *("é", "e\u0301", "\U0001f600", "\U000e0041", "ß" * 40, "a" * 300, "0", "-1", "1e999", "NaN", "true", "null"),
    *("user:\n", "${env:X}", "{{ x }}", "../../etc", "https://a.example", "data:image/png;base64,AAAA", "#/", "%00"),
    *("__proto__", "constructor", "__class__", "\r\n", "'", '"', "\\", "\\u0000", "1" * 5_000),
)
NASTY_NUMBERS = (
    *(0, -0.0, 1, -1, 2, 2**31, 2**53 + 1, 2**63, 2**64, -(2**64), 10**40, 10**400, 1e308, 5e-324, 1.5, 0.1),
    *(float("inf"), float("-inf"), float("nan"), 10**4_000),
)
NASTY_VALUES: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], [{}], {"": None}, {"a": {}}, [1, "a", None])


def nasty_value(dice: Random, words: Sequence[str]) -> Any:
    """Return a value that a reader may not expect."""
    match dice.randrange(9):
        case 0 | 1:
            return dice.choice(NASTY_TEXTS)
        case 2 | 3:
            return dice.choice(NASTY_NUMBERS)
        case 4 | 5:
            return dice.choice(words)
        case 6 if dice.random() < 0.03:
            return nest(dice.choice(NASTY_VALUES), dice.choice((20, 70, 150, 300, 900)), dice)
        case 6:
            return nest(dice.choice(NASTY_VALUES), dice.randrange(1, 6), dice)
        case 7 if dice.random() < 0.01:
            return large_value(dice, words)
        case _:
            return dice.choice(NASTY_VALUES)


def large_value(dice: Random, words: Sequence[str]) -> Any:
    """Return a value that takes a reader long, unless it takes linear time."""
    number = dice.choice((1_000, 5_000))
    match dice.randrange(4):
        case 0:
            return dice.choice((*words, *NASTY_TEXTS)) * number
        case 1:
            return [dice.choice(NASTY_VALUES)] * number
        case 2:
            return [{dice.choice(words): dice.choice(NASTY_TEXTS)}] * number
        case _:
            return {f"{dice.choice(words)}{at}": at for at in range(number)}


def nest(value: Any, depth: int, dice: Random) -> Any:
    """Return a value in containers of containers."""
    name = dice.choice(("a", "", "items", "properties", None))
    for _ in range(depth):
        value = [value] if name is None else {name: value}
    return value


def mutate_tree(value: Any, dice: Random, words: Sequence[str]) -> Any:
    """Return a JSON value that differs in one place. What stays is shared with the original."""
    if not isinstance(value, dict | list) or not value or dice.random() < 0.08:
        return nasty_value(dice, words)
    change = dice.randrange(12)
    if isinstance(value, list):
        at = dice.randrange(len(value))
        match change:
            case 0:
                return [*value[:at], *value[at + 1 :]]
            case 1:
                return [*value[:at], value[at], *value[at:]]
            case 2:
                return [*value, nasty_value(dice, words)]
            case 3 if dice.random() < 0.2:
                return value * dice.choice((2, 10, 40))
            case 4:
                return value[::-1]
        return [*value[:at], mutate_tree(value[at], dice, words), *value[at + 1 :]]
    name = dice.choice(tuple(value))
    match change:
        case 0:
            return {key: entry for key, entry in value.items() if key != name}
        case 1:
            return {(dice.choice(words) if key == name else key): entry for key, entry in value.items()}
        case 2:
            return {**value, dice.choice(words): nasty_value(dice, words)}
        case 3:
            return {**value, name: value[dice.choice(tuple(value))]}
        case 4:
            return {**value, dice.choice(NASTY_TEXTS): value[name]}
    return {**value, name: mutate_tree(value[name], dice, words)}


def mutate_trees(value: Any, dice: Random, words: Sequence[str]) -> Any:
    """Return a JSON value with one change or a few."""
    for _ in range(dice.choice((1, 1, 1, 2, 2, 3, 5))):
        value = mutate_tree(value, dice, words)
    return value


def write_json(value: Any, dice: Random, words: Sequence[str]) -> str:
    """Return JSON text, at times with a key twice or damaged."""
    text: str = json.dumps(value, ensure_ascii=dice.random() < 0.7)
    match dice.randrange(10):
        case 0:
            return mutate_text(text, dice, words, (text,))
        case 1 if isinstance(value, dict) and value:
            name = dice.choice(tuple(value))
            return f"{text[:-1]}, {json.dumps(name)}: {json.dumps(nasty_value(dice, words))}}}"
    return text


def mutate_text(text: str, dice: Random, words: Sequence[str], others: Sequence[str]) -> str:
    """Return a text with one change or a few."""
    for _ in range(dice.choice((1, 1, 2, 2, 3, 5, 8))):
        text = _mutate_once(text, dice, words, others)
    if dice.random() < 0.001:
        return _inflate(text[:MAX_LENGTH], dice, words)
    return text[:MAX_LENGTH]


def _inflate(text: str, dice: Random, words: Sequence[str]) -> str:
    """Return a text in which one piece is repeated very often."""
    start = dice.randrange(len(text) + 1)
    piece = text[start : start + dice.choice((1, 2, 5, 20, 60, 200))] or dice.choice(words)
    return text[:start] + piece * (LARGE // len(piece)) + text[start:]


def _mutate_once(text: str, dice: Random, words: Sequence[str], others: Sequence[str]) -> str:
    start = dice.randrange(len(text) + 1)
    end = min(len(text), start + dice.choice((0, 1, 1, 2, 5, 20, 100)))
    before, piece, after = text[:start], text[start:end], text[end:]
    match dice.randrange(14):
        case 0:
            return before + after
        case 1:
            return before + piece * dice.choice((2, 3, 10)) + after
        case 2:
            times = dice.choice((30, 200, DEEP)) if dice.random() < 0.1 else dice.randrange(2, 9)
            repeated: str = dice.choice((*words, *"[]{}()\"'`:-#& \n\t<>=|,"))
            return before + repeated * times + after
        case 3 | 4 | 5:
            return before + dice.choice(words) + after
        case 6:
            return before + dice.choice(words) + text[start:]
        case 7:
            return before + dice.choice(NASTY_TEXTS) + after
        case 8:
            return before + str(dice.choice(NASTY_NUMBERS[:-1])) + after
        case 9:
            return before
        case 10:
            other = dice.choice(others)
            at = dice.randrange(len(other) + 1)
            return before + other[at : at + dice.choice((5, 40, 300))] + after
        case 11:
            return (
                before
                + chr(dice.choice((dice.randrange(128), dice.randrange(0x250), dice.randrange(0x110000))))
                + after
            )
        case 12:
            return before + dice.choice((piece.upper(), piece.swapcase(), piece[::-1], piece.strip())) + after
        case _:
            return after + piece + before


def mutate_bytes(data: bytes, dice: Random, words: Sequence[bytes]) -> bytes:
    """Return bytes with one change or a few, of which some break UTF-8."""
    for _ in range(dice.choice((1, 1, 2, 3, 5))):
        start = dice.randrange(len(data) + 1)
        end = min(len(data), start + dice.choice((0, 1, 1, 4, 30)))
        before, piece, after = data[:start], data[start:end], data[end:]
        match dice.randrange(7):
            case 0:
                data = before + bytes((dice.randrange(256),)) + after
            case 1:
                data = before + after
            case 2:
                data = before + piece * dice.choice((2, 3, 20)) + after
            case 3 | 4:
                data = before + dice.choice(words) + after
            case 5:
                data = (
                    before
                    + dice.choice((b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"\xf4\x90\x80\x80", b"\0", b"\xef\xbb\xbf"))
                    + after
                )
            case _:
                data = before if dice.random() < 0.5 else after
    return data[: 2 * MAX_LENGTH]


def cut(data: bytes, dice: Random) -> list[bytes]:
    """Return bytes in chunks that end anywhere."""
    first, size = dice.randrange(len(data) + 1), dice.choice((1, 2, 7, 50, 400, 10_000))
    if len(data) > 400 * size:
        size = len(data)
    return [data[:first], *(data[at : at + size] for at in range(first, len(data), size))]
