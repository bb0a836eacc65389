"""`prompty models`: the servers that prompty knows, and the models that one of them offers."""

from pathlib import Path
from typing import Annotated

from rich.text import Text
from typer import Argument

from prompty.cli.console import out, print_json
from prompty.cli.inputs import build_bare_agent, load_prompt_file
from prompty.cli.options import AllowEnv, AsJson, ProviderKey, Roots, Variant
from prompty.model.agent import PromptAgent
from prompty.providers import PROVIDERS
from prompty.providers.models import list_models
from prompty.providers.profiles import PROFILES, Profile, get_profile
from prompty.registry import DEFAULT
from prompty.safety.visible import visible

# Environment variable with the default endpoint, by provider.
_ENDPOINTS = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL", "foundry": "AZURE_OPENAI_ENDPOINT"}


def _print_servers(*, as_json: bool) -> None:
    """Print what to write in a file for each server, and the variables to set."""
    if as_json:
        print_json([_describe(profile) for profile in PROFILES])
        return
    for profile in PROFILES:
        out.print(Text.assemble((profile.name, "bold"), f"  ({profile.title})"))
        for name, value in _describe(profile).items():
            if value and name not in ("name", "title"):
                out.print(f"    {name}: {', '.join(value) if isinstance(value, list) else value}")


def _describe(profile: Profile) -> dict[str, str | list[str]]:
    return {
        "name": profile.name,
        "title": profile.title,
        "provider": profile.provider,
        "endpoint": profile.base_url,
        "hosts": list(profile.hosts),
        "variables": [name for name in (profile.key, _ENDPOINTS[profile.provider]) if name],
        "apiTypes": list(profile.apis),
        "documentation": profile.docs,
    }


def models(
    file: Annotated[
        Path | None, Argument(metavar="FILE|PROVIDER", help="A .prompty file, or the name of a provider.")
    ] = None,
    variant: Variant = None,
    provider: ProviderKey = None,
    roots: Roots = None,
    allow_env: AllowEnv = None,
    as_json: AsJson = False,
) -> None:
    """Ask the server that FILE uses, or a PROVIDER such as ollama, for its models. Print their ids, and what the server
    says about them: when they end, how long their answers can be, and what they support.

    Without FILE, list the servers that prompty knows: what to write in a file, and the variables to set.
    """
    if file is None and provider is None:
        _print_servers(as_json=as_json)
        return
    found = list_models(_load_agent(file, variant, provider, roots, allow_env))
    if as_json:
        print_json([model._asdict() for model in found])
        return
    for model in found:
        notes = [
            f"ends {model.ends}" if model.ends else "",
            model.lifecycle if model.lifecycle and model.lifecycle != "active" else "",
            f"at most {model.max_output} tokens" if model.max_output else "",
            ", ".join(model.capabilities),
        ]
        about = "; ".join(filter(None, notes))
        out.print(Text.assemble(visible(model.id), (f"  {visible(about)}" if about else "", "dim")))


def _load_agent(
    file: Path | None,
    variant: str | None,
    provider: str | None,
    roots: list[Path] | None,
    allow_env: list[str] | None,
) -> PromptAgent:
    """Return the agent of a file, or one for a provider that is named instead of a file."""
    named = provider if file is None else str(file)
    if file is not None and not (_is_server(str(file)) and not file.exists()):
        return load_prompt_file(file, variant, provider=provider, roots=roots, allow_env=allow_env)
    return build_bare_agent(provider=named)


def _is_server(name: str) -> bool:
    return get_profile(name) is not None or DEFAULT[PROVIDERS].has(name)
