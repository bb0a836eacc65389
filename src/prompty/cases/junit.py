"""Results as JUnit XML, which CI services read."""

import re
from collections.abc import Sequence
from itertools import groupby
from xml.etree import ElementTree

from prompty.cases.results import TrialResult, count_statuses

# Characters that XML 1.0 does not have, even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(results: Sequence[TrialResult]) -> str:
    """Return a document with one test suite for each test file."""
    counts = count_statuses(results)
    root = ElementTree.Element(
        "testsuites",
        name="prompty test",
        tests=str(len(results)),
        failures=str(counts["failed"]),
        errors=str(counts["error"]),
        time=_sum_seconds(results),
    )
    for name, group in groupby(results, key=lambda result: result.suite):
        _add_suite(root, name, list(group))
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _add_suite(root: ElementTree.Element, name: str, results: Sequence[TrialResult]) -> None:
    counts = count_statuses(results)
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=_clean(name),
        tests=str(len(results)),
        failures=str(counts["failed"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
        time=_sum_seconds(results),
    )
    for result in results:
        _add_case(suite, result)


def _add_case(suite: ElementTree.Element, result: TrialResult) -> None:
    name = _clean(result.key.removeprefix(f"{result.suite}::"))
    case = ElementTree.SubElement(
        suite, "testcase", classname=_clean(result.suite), name=name, time=f"{result.seconds or 0:.3f}"
    )
    reasons = [_clean(reason) for reason in result.reasons]
    tag = {"failed": "failure", "error": "error", "skipped": "skipped"}.get(result.status)
    if tag:
        message = next(iter(reasons), "").partition("\n")[0]
        ElementTree.SubElement(case, tag, message=message).text = "\n".join(reasons)
    elif reasons:
        ElementTree.SubElement(case, "system-out").text = "\n".join(reasons)


def _sum_seconds(results: Sequence[TrialResult]) -> str:
    return f"{sum(result.seconds or 0 for result in results):.3f}"


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
