"""Skills as a tool: the kind `skills` lets a model read folders with a `SKILL.md` (agentskills.io).

The model sees the name and the description of each skill. `read_skill` returns the instructions of one, or a file in
its folder. It reads nothing outside that folder, and runs nothing in it.
"""

import os
from asyncio import to_thread
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from prompty.errors import ToolError
from prompty.model.agent import PromptAgent
from prompty.model.message import Json
from prompty.model.request import Function
from prompty.model.tool import READ_SKILL, SkillsTool, ToolDefinition
from prompty.pipeline.files import Unreadable, find_matches, is_hidden, read_file
from prompty.pipeline.frontmatter import Unclosed, normalize, read_frontmatter, split
from prompty.tools.calls import ReportedFailure
from prompty.tools.function import ToolContext, ToolOptions
from prompty.tools.kinds import KindTool, locate_file

FILE = "SKILL.md"
MAX_SKILLS = 100
LONGEST_NAME = 64
LONGEST_DESCRIPTION = 1_024
_MAX_LISTED = 50  # files in one error
_MAX_SEARCHED = 1_000
_PURPOSE = "Read the instructions of a skill before a task that its description covers, or a file that they mention."


class Skill(NamedTuple):
    """A skill, and the resolved path of its folder."""

    name: str
    description: str
    folder: Path


class SkillsKind:
    """The tool kind `skills`. Every turn reads the folder again, so that a changed skill counts at once."""

    def is_local(self, _: ToolDefinition, __: PromptAgent, /) -> bool:
        """Return True: the functions are known without a server."""
        return True

    def find_parameters(self, _: ToolDefinition, __: PromptAgent, /) -> frozenset[str]:
        """Return the parameters of `read_skill`."""
        return frozenset({"skill", "file"})

    async def describe(self, tool: ToolDefinition, agent: PromptAgent, /) -> Sequence[KindTool]:
        """Return the function that reads the skills of a tool."""
        if not isinstance(tool, SkillsTool):
            raise ToolError(f"the tool '{tool.name}' names no folder of skills", "Write `kind: skills` and a `path:`.")
        skills, errors = await to_thread(list_skills, tool, agent)
        for error in errors:
            raise error
        read = partial(_read, {skill.name: skill for skill in skills})

        async def call(arguments: Json, context: ToolContext) -> str:
            return await to_thread(read, arguments, context)

        function = Function(
            name=READ_SKILL, description=tool.description or _PURPOSE, parameters=_build_parameters(skills)
        )
        return [KindTool(function=function, call=call, call_sync=read, options=ToolOptions(idempotent=True))]


def _build_parameters(skills: Sequence[Skill]) -> Json:
    # The descriptions are not part of the function's own, which OpenAI limits to 1,024 characters.
    lines = [f"- {skill.name}: {skill.description}" for skill in skills]
    file = "The path of a file in the skill's folder. Leave it out to read the instructions."
    return {
        "type": "object",
        "properties": {
            "skill": {
                "type": "string",
                "enum": [skill.name for skill in skills],
                "description": "\n".join(["The skill to read:", *lines]),
            },
            "file": {"type": "string", "description": file},
        },
        "required": ["skill"],
        "additionalProperties": False,
    }


def list_skills(tool: SkillsTool, agent: PromptAgent) -> tuple[list[Skill], list[ToolError]]:
    """Return the skills in a tool's folder by name, and an error for each that cannot be offered.

    The folder may also be that of a single skill.
    """
    skills, errors = dict[str, Skill](), list[ToolError]()
    try:
        for path in _find_folders(tool, agent):
            try:
                skill = _read_skill(path, locate_file(path, tool, agent))
                if skill.name in skills:
                    raise ToolError(f"two skills in '{tool.path}' are named '{skill.name}'", "Rename one of them.")
                skills[skill.name] = skill
            except ToolError as error:
                errors.append(error)
    except ToolError as error:
        return [], [error]
    if not skills and not errors:
        fix = f"Write a skill in {tool.path}/NAME/{FILE}, or correct `path:`."
        errors = [ToolError(f"no folder in '{tool.path}' of the tool '{tool.name}' has a {FILE}", fix)]
    if len(skills) > MAX_SKILLS:
        errors = [ToolError(f"'{tool.path}' has more than {MAX_SKILLS} skills", "Divide them among several prompts.")]
    return sorted(skills.values()), errors


def _find_folders(tool: SkillsTool, agent: PromptAgent) -> Iterator[str]:
    """Yield the paths of the folders that have a `SKILL.md`, as the file would name them."""
    try:
        folder = locate_file(tool.path, tool, agent)
        if os.path.lexists(folder / FILE):
            yield tool.path
            return
        names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, ToolError):  # it is a ValueError
            raise
        reason = getattr(error, "strerror", None) or "the path is not valid"
        raise ToolError(
            f"cannot read the skills in '{tool.path}' of the tool '{tool.name}': {reason}",
            "Name a folder in `path:`, relative to the prompt.",
        ) from None
    yield from (f"{tool.path.rstrip('/')}/{name}" for name in names if os.path.lexists(folder / name / FILE))


def _read_skill(path: str, folder: Path) -> Skill:
    """Read the name and the description of a skill, whose file the errors name by the path of its folder."""
    label = f"{path}/{FILE}"
    try:
        parts = split(normalize(_read_file(folder, FILE)))
    except (Unreadable, Unclosed) as error:
        raise ToolError(f"cannot read the skill '{label}': {error}", "Correct that file.") from None
    frontmatter = read_frontmatter(parts.frontmatter or "")
    if frontmatter.findings:
        problem = frontmatter.findings[0].problem
        raise ToolError(f"cannot read the skill '{label}': {problem.message}", problem.fix)
    found = frontmatter.data or {}
    name, description = found.get("name"), found.get("description")
    if not isinstance(name, str) or not _is_name(name):
        raise ToolError(
            f"the skill '{label}' has no valid `name`",
            f"Write 1 to {LONGEST_NAME} lower-case letters, digits and single hyphens, as in `name: {folder.name}`.",
        )
    if not isinstance(description, str) or not description.strip():
        fix = "Write what the skill does, and when to use it."
        raise ToolError(f"the skill '{label}' has no `description`", fix)
    if len(description) > LONGEST_DESCRIPTION:
        cause = f"the description of the skill '{label}' has more than {LONGEST_DESCRIPTION:,} characters"
        raise ToolError(cause, "Shorten it, and move details into the instructions below.")
    return Skill(name, " ".join(description.split()), folder)


def _is_name(name: str) -> bool:
    words = name.split("-")
    return len(name) <= LONGEST_NAME and name == name.lower() and all(word.isalnum() for word in words)


def _read(skills: Mapping[str, Skill], arguments: Json, _: ToolContext) -> str:
    """Return the instructions of a skill, or a file in its folder."""
    skill, file = skills.get(str(arguments["skill"])), arguments.get("file")
    if skill is None:  # a binding names it
        raise ReportedFailure(f"there is no skill '{arguments['skill']}', but: {', '.join(skills)}")
    try:
        if file is None or file == "":
            return split(normalize(_read_file(skill.folder, FILE))).body
        return normalize(_read_file(skill.folder, str(file)))
    except Unreadable as error:
        known = (
            f". Its files are: {', '.join(_list_files(skill.folder)) or 'none'}" if error.code == "file-missing" else ""
        )
        raise ReportedFailure(f"{error}{known}") from None
    except Unclosed as error:
        raise ReportedFailure(f"the skill's {FILE} is broken: {error}") from None


def _read_file(folder: Path, file: str) -> str:
    """Return the text of a file in a skill's folder. Raise Unreadable for any other, and for a hidden one."""
    parts = PurePosixPath(file.replace("\\", "/")).parts
    try:
        path = folder.joinpath(*parts).resolve()
    except (OSError, ValueError, RuntimeError):
        raise Unreadable("file-missing", f"{file!r} is not a valid path", "Correct the path.") from None
    is_inside = path.is_relative_to(folder) and not is_hidden(path.relative_to(folder))
    if not is_inside or any(part.startswith((".", "/")) for part in parts):
        raise Unreadable("file-outside", f"{file} is not a file of the skill", "Name a file in its folder.")
    return read_file(path, file, {}, contained=True)[0]


def _list_files(folder: Path) -> list[str]:
    files = sorted(islice(find_matches(folder, "**"), _MAX_SEARCHED))
    shown = [file for file in files if file != FILE and not any(part.startswith(".") for part in file.split("/"))]
    return [*shown[:_MAX_LISTED], "…"] if len(shown) > _MAX_LISTED else shown
