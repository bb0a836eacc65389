// Finds the command that starts the server. Free of `vscode`, so that tests run it in plain Node.
import { execFile } from 'node:child_process';

export interface Command {
  command: string;
  args: string[];
}

/** What to do if there is no command. `SOURCE` in src/prompty/version.py is what pip installs. */
export const ADVICE =
  "The Python of this workspace has no prompty for Python. Run: pip install 'path/to/prompty-python[cli]', " +
  'with the path of your checkout. Or name another Python in `prompty.python`.';

/** Return the command of the setting's Python, or of the Python extension's if that has the package. */
export async function findCommand(
  setting: string,
  environment: () => Promise<string | undefined>,
  works: (command: string, args: string[]) => Promise<boolean> = runs,
): Promise<Command | undefined> {
  if (setting !== '') {
    return withPython(setting); // if it does not work, its error says why
  }
  const python = await environment();
  if (python !== undefined && (await works(python, ['-I', '-c', 'import prompty.lsp, typer']))) {
    return withPython(python);
  }
  return undefined;
}

/** `-I` keeps the working folder and PYTHONPATH out of the module search: a `yaml.py` beside a prompt would run. */
function withPython(python: string): Command {
  return { command: python, args: ['-I', '-m', 'prompty'] };
}

function runs(command: string, args: string[]): Promise<boolean> {
  return new Promise((resolve) => execFile(command, args, { timeout: 30_000 }, (error) => resolve(error === null)));
}
