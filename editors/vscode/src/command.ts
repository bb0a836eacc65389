// Finds the command that starts the server. Free of `vscode`, so that tests run it in plain Node.
import { execFile } from 'node:child_process';

export interface Command {
  command: string;
  args: string[];
}

const PACKAGE = 'prompty-runtime[cli]';

/** Return the first command that works: the setting's Python, the Python extension's, or `uvx`. */
export async function findCommand(
  setting: string,
  environment: () => Promise<string | undefined>,
  works: (command: string, args: string[]) => Promise<boolean> = runs,
): Promise<Command | undefined> {
  if (setting !== '') {
    return withPython(setting); // if it does not work, its error says why
  }
  const python = await environment();
  if (python !== undefined && (await works(python, ['-c', 'import prompty.lsp, typer']))) {
    return withPython(python);
  }
  if (await works('uvx', ['--version'])) {
    return { command: 'uvx', args: ['--from', PACKAGE, 'prompty'] };
  }
  return undefined;
}

function withPython(python: string): Command {
  return { command: python, args: ['-m', 'prompty'] };
}

function runs(command: string, args: string[]): Promise<boolean> {
  return new Promise((resolve) => execFile(command, args, { timeout: 30_000 }, (error) => resolve(error === null)));
}
