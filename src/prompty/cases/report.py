"""Results as one self-contained HTML page that loads nothing."""

from collections.abc import Mapping, Sequence

from prompty.cases.comparison import Comparison
from prompty.cases.results import TrialResult, count_statuses
from prompty.model.message import Json
from prompty.viewer.page import build_page


def render_report(
    results: Sequence[TrialResult],
    notes: Sequence[str] = (),
    comparison: Comparison | None = None,
    before: Mapping[str, TrialResult] | None = None,
    reference: str = "",
) -> str:
    """Return the page. `before` has the results of another version by their keys, which are shown as differences."""
    data: Json = {
        "summary": count_statuses(results),
        "notes": list(notes),
        "reference": reference,
        "results": [_result_to_json(result, comparison, before or {}) for result in results],
    }
    return build_page("prompty.cases", "report", "Prompt tests", data)


def _result_to_json(result: TrialResult, comparison: Comparison | None, before: Mapping[str, TrialResult]) -> Json:
    flip = None
    if comparison is not None:
        flip = "worse" if result.key in comparison.worse else "better" if result.key in comparison.better else None
    return {**result_to_json(result), "flip": flip, "before": _get_earlier(before.get(result.key))}


def _get_earlier(result: TrialResult | None) -> Json | None:
    if result is None or not result.runs:
        return None
    return {"answer": result.runs[0].answer, "messages": list(result.runs[0].messages)}


def result_to_json(result: TrialResult) -> Json:
    """Return a result for other programs and for the page."""
    return {
        "suite": result.suite,
        "case": result.case,
        "variant": result.variant,
        "model": result.model,
        "status": result.status,
        "passes": result.passes,
        "needed": result.needed,
        "cost": result.cost,
        "seconds": result.seconds,
        "reasons": result.reasons,
        "runs": [run.to_json() for run in result.runs],
    }
