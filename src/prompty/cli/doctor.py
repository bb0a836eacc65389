"""`prompty doctor`: check the installation, the keys and the endpoints."""

import os
import platform
import re
from contextlib import suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated, Any

from rich.text import Text
from typer import Exit, Option

from prompty.cli.console import out, print_json
from prompty.cli.options import AsJson
from prompty.cli.search import find_files
from prompty.errors import PromptyError, RequestError
from prompty.model.agent import PromptAgent
from prompty.pipeline.dotenv import load_env
from prompty.pipeline.load import read_agent
from prompty.pipeline.model_override import override_model
from prompty.providers.facts import read_package_facts
from prompty.providers.keys import find_stores, get_key_names, get_stored_name
from prompty.providers.models import list_models
from prompty.registry import DEFAULT
from prompty.safety.origins import TRUST_VARIABLE
from prompty.safety.visible import visible
from prompty.version import __version__, build_install_command
from prompty_runtime.installation import OURS, inspect_installation

_ENDPOINTS = ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "AZURE_OPENAI_ENDPOINT", TRUST_VARIABLE)
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
_OLD_FACTS = 120  # days
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)[^;]*;.*\bextra\s*==\s*['\"]([^'\"]+)")


def doctor(
    connect: Annotated[
        bool, Option("--connect", help="Ask each server with a key for its models, and when those of your prompts end.")
    ] = False,
    everything: Annotated[bool, Option("--all", help="Also list the extras that are not installed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check the installation, the keys and the endpoints, and say how to fix each problem.

    Key values are never shown. The exit code is 1 if there is a problem.
    """
    dotenv = load_env(prompt=Path.cwd() / "prompt")
    facts = read_package_facts()["checked"]
    problems = [{"problem": one.problem, "fix": one.fix} for one in inspect_installation()]
    keys = _find_keys(str(dotenv), problems)
    report: dict[str, Any] = {
        "versions": {
            OURS: __version__,
            "python": platform.python_version(),
            "system": platform.platform(),
            "facts about models of": facts,
        },
        "extras": _find_extras(),
        "keys": keys,
        "variables": [name for name in (*_ENDPOINTS, *_PROXIES) if os.environ.get(name)],
        "servers": [_connect(str(key["name"])) for key in keys] if connect else [],
    }
    problems += [{"problem": server["error"], "fix": server["fix"]} for server in report["servers"] if server["error"]]
    if (age := (date.today() - date.fromisoformat(facts)).days) > _OLD_FACTS:
        fix = f"Update your checkout, then run: {build_install_command()}"
        problems.append({"problem": f"the facts about models are {age} days old", "fix": fix})
    report["problems"] = problems
    if as_json:
        print_json(report)
    else:
        print_findings(report, everything=everything)
    if problems:
        raise Exit(1)


def _find_extras() -> dict[str, list[str]]:
    """Return the missing packages of each extra."""
    try:
        required = distribution(OURS).requires or []
    except PackageNotFoundError:
        return {}
    extras: dict[str, list[str]] = {}
    for found in filter(None, map(_REQUIREMENT.match, required)):
        package, extra = found.groups()
        if package != OURS:
            extras.setdefault(extra, []).extend([] if _is_installed(package) else [package])
    return extras


def _is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


def _find_keys(dotenv: str, problems: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the name and location of each key, in the order in which calls look for them."""
    keys = []
    for name, variable in get_key_names().items():
        if name != get_stored_name(variable):
            continue
        if os.environ.get(variable):
            keys.append({"name": name, "place": f"environment variable {variable}"})
        elif DEFAULT.dotenv.get(variable):
            keys.append({"name": name, "place": f"{variable} in {dotenv}"})
    known = {key["name"] for key in keys}
    for store in find_stores():
        try:
            found = [name for name in dict.fromkeys(map(get_stored_name, get_key_names().values())) if store.read(name)]
        except RequestError as error:
            problems.append({"problem": error.cause, "fix": error.fix})
            continue
        keys += [{"name": name, "place": str(store)} for name in found if name not in known]
        known.update(found)
    return keys


def _connect(name: str) -> dict[str, str]:
    """Ask a server for its models, with the key that a call would use."""
    agent = override_model(PromptAgent.model_validate({"model": {"id": "any"}}), f"{name}:any")
    try:
        models = list_models(agent)
        ending = {model.id: model.ends for model in models if model.ends}
        used = [id for id in _list_used_models(name) if id in ending]
        ends = "".join(f"; {id} ends on {ending[id]}" for id in used)
        return {"name": name, "answer": f"{len(models)} models{ends}", "error": "", "fix": ""}
    except PromptyError as error:
        cause, _, fix = str(error).partition("\n")
        fix = fix.strip() or "Check the key, the network and the proxy, then try again."
        return {"name": name, "answer": "", "error": f"{name}: {cause}", "fix": fix}


def _list_used_models(provider: str) -> list[str]:
    """Return the models that the prompts below the current folder use of a provider."""
    used: dict[str, None] = {}
    for file in find_files(Path.cwd(), ".prompty"):
        with suppress(PromptyError):
            model = read_agent(file, (), DEFAULT).model
            if model.id and model.provider == provider:
                used[model.id] = None
    return list(used)


def print_findings(report: dict[str, Any], *, everything: bool) -> None:
    """Print the report for people. With `everything`, also the extras that are not installed."""
    for name, version in report["versions"].items():
        out.print(visible(f"{name} {version}"))
    complete = [extra for extra, missing in report["extras"].items() if not missing]
    more = "" if everything or len(complete) == len(report["extras"]) else " (--all lists the others)"
    out.print(f"extras: {', '.join(complete) or 'none'}{more}")
    for extra, missing in report["extras"].items() if everything else ():
        if missing:
            out.print(f"    {extra} lacks {', '.join(missing)}: {build_install_command(extra)}")
    out.print("keys:" if report["keys"] else "keys: none (to store one, run `prompty keys set PROVIDER`)")
    for key in report["keys"]:
        out.print(visible(f"    {key['name']}: {key['place']}"))
    if report["variables"]:
        out.print(f"set in the environment: {', '.join(report['variables'])}")
    for server in report["servers"]:
        if not server["error"]:
            out.print(visible(f"{server['name']}: reachable, {server['answer']}"))
    for problem in report["problems"]:
        out.print(Text.assemble(("problem", "bold red"), f": {visible(problem['problem'])}"))
        out.print(Text(f"    {visible(problem['fix'])}", "green"))
    out.print(f"{len(report['problems'])} problems" if report["problems"] else "no problems")
