"""The body of a variant: its own, its base's, or its base's with some blocks replaced."""

import math
import re
from typing import Protocol, cast

from prompty.errors import RenderError
from prompty.model.agent import BodyLines, FileLine
from prompty.pipeline.frontmatter import BaseBody
from prompty.pipeline.partials import CompositionProblem
from prompty.renderers import TemplateBlock

_MAY_HAVE_BLOCKS = re.compile(r"%[-+]?\s*block\b")


class BlockEngine(Protocol):
    """The part of a renderer that finds the blocks in a template."""

    def blocks(self, template: str) -> list[TemplateBlock]: ...


def merge_bodies(own: str, base: BaseBody, engine: object) -> tuple[str, BodyLines | None]:
    """Return the body of a variant, and the origin of its lines: None if all are the variant's own.

    Raise CompositionProblem if blocks cannot be replaced. Invalid templates are reported when they are rendered.
    """
    if not own.strip():
        return base.text, BodyLines((1,), (FileLine(base.path, base.first_line),))
    if not (hasattr(engine, "blocks") and _MAY_HAVE_BLOCKS.search(own) and _MAY_HAVE_BLOCKS.search(base.text)):
        return own, None
    try:
        engine = cast(BlockEngine, engine)
        replacing, replaceable = engine.blocks(own), {block.name: block for block in engine.blocks(base.text)}
    except RenderError:
        return own, None
    if not replacing or not replaceable:
        return own, None
    outer = [block for block in replacing if not block.parents]
    _check(own, outer, replaceable)
    return _replace(own, base, [(replaceable[block.name], block) for block in outer])


def _check(own: str, replacing: list[TemplateBlock], replaceable: dict[str, TemplateBlock]) -> None:
    """Check that a body consists of blocks of the base, and that none is inside another that it replaces."""
    position = 0
    for block in replacing:
        _check_no_text(own, position, block.start)
        position = block.end
        if any(other.name == block.name and other.start < block.start for other in replacing):
            raise _refuse(own, block.start, f"duplicate block `{block.name}`", "Remove one of them.")
        if block.name not in replaceable:
            names = ", ".join(sorted(replaceable))
            raise _refuse(own, block.start, f"the base has no block `{block.name}`", f"Its blocks are: {names}.")
        for parent in replaceable[block.name].parents:
            if any(other.name == parent for other in replacing):
                cause = f"the block `{block.name}` is inside the block `{parent}`, which this variant also replaces"
                raise _refuse(own, block.start, cause, f"Move `{block.name}` inside `{parent}`.")
    _check_no_text(own, position, len(own))


def _check_no_text(own: str, start: int, end: int) -> None:
    text = own[start:end]
    if text.strip():
        cause = "text outside a block, but this variant replaces blocks of its base"
        fix = "Move the text into a block, or remove the blocks to replace the whole body."
        raise _refuse(own, end - len(text.lstrip()), cause, fix)


def _refuse(own: str, at: int, cause: str, fix: str) -> CompositionProblem:
    return CompositionProblem(FileLine(None, 1 + own.count("\n", 0, at)), "variant-block", cause, fix)


def _replace(own: str, base: BaseBody, pairs: list[tuple[TemplateBlock, TemplateBlock]]) -> tuple[str, BodyLines]:
    """Return the base with the variant's block texts between its own tags, and the origin of its lines."""
    pieces: list[tuple[str, FileLine]] = []
    position, line = 0, base.first_line
    for target, block in sorted(pairs, key=lambda pair: pair[0].start):
        kept = base.text[position : target.inner_start]
        pieces.append((kept, FileLine(base.path, line)))
        pieces.append((own[block.inner_start : block.inner_end], FileLine(None, block.line)))
        position = target.inner_end
        line += kept.count("\n") + base.text.count("\n", target.inner_start, position)
    pieces.append((base.text[position:], FileLine(base.path, line)))
    return "".join(text for text, _ in pieces), _map_lines(pieces)


def _map_lines(pieces: list[tuple[str, FileLine]]) -> BodyLines:
    """Return the origin of each line of the joined pieces. A line from both files is the variant's."""
    starts, places = list[int](), list[FileLine]()
    line, within_line = 1, False
    for text, place in pieces:
        below = int(text.startswith("\n") if place.path is None else within_line)
        if text and (not below or "\n" in text):
            starts.append(line + below)
            places.append(place._replace(line=place.line + below))
        line += text.count("\n")
        within_line = not text.endswith("\n") if text else within_line
    return BodyLines(tuple(starts), tuple(places))


def trace_lines(lines: BodyLines, earlier: BodyLines) -> BodyLines:
    """Trace lines without a path, which are lines of a composed text, to their files."""
    starts, places = list[int](), list[FileLine]()
    for start, place, end in zip(lines.starts, lines.places, (*lines.starts[1:], math.inf), strict=True):
        starts.append(start)
        if place.path is not None:
            places.append(place)
            continue
        places.append(earlier.locate(place.line))
        for later, origin in zip(earlier.starts, earlier.places, strict=True):
            if place.line < later < place.line + end - start:
                starts.append(start + later - place.line)
                places.append(origin)
    return BodyLines(tuple(starts), tuple(places))
