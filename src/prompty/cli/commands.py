"""The commands by group, with their lines in `prompty --help`. They are static, so that help imports no command."""

from typing import NamedTuple


class Command(NamedTuple):
    """A command: the object that implements it, and its line in the help."""

    target: str
    summary: str


GROUPS: dict[str, dict[str, Command]] = {
    "Start": {
        "new": Command("new:new", "Create a small prompt that runs at once, without a key."),
        "run": Command("run:run_prompt", "Run a prompt and print the answer."),
        "chat": Command("chat:chat", "Talk to a model, or to the agent in a file."),
        "doctor": Command("doctor:doctor", "Check the installation, the keys and the endpoints."),
    },
    "Write": {
        "check": Command("check:check_prompts", "List errors and warnings in prompts and test files."),
        "render": Command("render:render_prompt", "Print the messages of a prompt, without a model call."),
        "explain": Command("render:explain_request", "Print the exact request, without sending it."),
        "lsp": Command("lsp:serve_editor", "Start the language server for your editor."),
    },
    "Test": {
        "test": Command("test:run_tests", "Run the cases in .test.yaml files, offline by default."),
    },
    "Observe": {
        "trace": Command("trace:trace_app", "List, show and export recorded runs."),
    },
    "Providers": {
        "models": Command("models:models", "List the providers, or the models of one."),
        "keys": Command("keys:keys", "Store, list and remove provider keys."),
    },
    "From other tools": {
        "migrate": Command("migrate:migrate_files", "Rewrite Prompty v1 files as v2."),
    },
    "Production": {
        "batch": Command("batch:run_batch", "Run a prompt once for each row of a file."),
    },
}
COMMANDS: dict[str, Command] = {name: command for group in GROUPS.values() for name, command in group.items()}
