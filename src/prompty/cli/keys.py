"""`prompty keys`: store provider keys, so that they are in no file or shell history."""

import os
import sys
from typing import Annotated

from typer import Argument, Context, Typer, prompt

from prompty.cli.console import err, fail, out, print_json
from prompty.cli.options import AsJson
from prompty.errors import did_you_mean, nearest
from prompty.providers.credentials import check_header
from prompty.providers.keys import find_stores, get_key_names, get_stored_name

_LONGEST = 10_000

keys: Typer = Typer(name="keys", help="Store, list and remove provider keys.", no_args_is_help=True)
ProviderName = Annotated[str, Argument(help="A provider or a server: openai, anthropic, groq …")]


# Any argument after the name would be a key, which no error may repeat.
@keys.command("set", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def set_key(context: Context, provider: ProviderName) -> None:
    """Store the key for PROVIDER, read from a hidden prompt or from standard input.

    The key is stored in the system keyring (extra keyring), or else in a file that only you can read.
    """
    if context.args:
        fail(
            "a key on the command line stays in your shell history\n"
            f"    Run `prompty keys set {_find_name(provider)}`, and paste the key when asked."
        )
    name = _find_name(provider)
    key = _read_key(name)
    store = find_stores()[0]
    store.write(name, check_header("the key", key))
    out.print(f"Stored the key for {name} in {store}.")
    variable = get_key_names()[name]
    if os.environ.get(variable):
        err.print(f"{variable} is set in the environment and is used instead.")


@keys.command("list")
def list_keys(as_json: AsJson = False) -> None:
    """List the stored keys and where they are, without their values."""
    found = [
        {"provider": name, "place": str(store), "variable": variable, "overridden": bool(os.environ.get(variable))}
        for name, variable in get_key_names().items()
        if name == get_stored_name(variable)
        for store in find_stores()
        if store.read(name)
    ]
    if as_json:
        print_json(found)
        return
    for entry in found:
        note = f" (the environment variable {entry['variable']} is used instead)" if entry["overridden"] else ""
        out.print(f"{entry['provider']}  {entry['place']}{note}")
    if not found:
        err.print("No keys are stored. To store one, run `prompty keys set PROVIDER`.")


@keys.command("remove")
def remove_key(provider: ProviderName) -> None:
    """Remove the stored key for PROVIDER."""
    name = _find_name(provider)
    removed = [str(store) for store in find_stores() if store.remove(name)]
    if not removed:
        fail(f"no key for {name} is stored\n    See `prompty keys list`.")
    out.print(f"Removed the key for {name} from {' and '.join(removed)}.")


def _find_name(provider: str) -> str:
    """Return the name under which a provider's key is stored. An unknown name is not repeated: it may be a key."""
    names = get_key_names()
    if provider not in names:
        hint = did_you_mean(nearest(provider, names))
        fail(f"no provider with that name takes a key\n    {hint}Use one of {', '.join(sorted(names))}.")
    return get_stored_name(names[provider])


def _read_key(name: str) -> str:
    if sys.stdin.isatty():
        key = prompt(f"Key for {name}", hide_input=True, err=True)
    else:
        key = sys.stdin.readline(_LONGEST + 1)
    key = str(key).strip()
    if not key or len(key) > _LONGEST:
        fail(
            f"{'no key was given' if not key else 'that is too long for a key'}\n"
            f"    Paste it when asked, or pipe it: prompty keys set {name} < FILE"
        )
    return key
