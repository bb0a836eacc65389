// Starts `prompty lsp` and shows what it knows. All analysis is the server's.
import * as path from 'node:path';
import * as vscode from 'vscode';
import { ExecuteCommandRequest, LanguageClient, LanguageClientOptions, Middleware } from 'vscode-languageclient/node';
import { ADVICE, Command, findCommand } from './command';
import { Preview } from './page';
import { PreviewPanel } from './preview';

const MICROSOFT = 'ms-toolsai.prompty';
const SELECTOR = [
  { scheme: 'file', language: 'prompty' },
  { scheme: 'file', pattern: '**/*.test.{yaml,yml}' },
];

/** With Microsoft's extension, only diagnostics: it completes, explains and previews already. */
const DIAGNOSTICS_ONLY: Middleware = {
  provideCompletionItem: () => undefined,
  provideHover: () => undefined,
  provideDefinition: () => undefined,
  provideReferences: () => undefined,
  provideRenameEdits: () => undefined,
  prepareRename: () => undefined,
  provideDocumentSymbols: () => undefined,
  provideCodeActions: () => undefined,
  provideCodeLenses: () => undefined,
};

let client: LanguageClient | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<{ showPreview(uri: string): Promise<string> }> {
  const complete = vscode.extensions.getExtension(MICROSOFT) === undefined;
  await vscode.commands.executeCommand('setContext', 'prompty.complete', complete);
  const preview = new PreviewPanel(askForPreview);
  const showPreview = (uri = vscode.window.activeTextEditor?.document.uri.toString()) =>
    preview.show(uri ?? '');
  const middleware: Middleware = complete
    ? { executeCommand: (name, args, next) => (name === 'prompty.preview' ? showPreview(args[0]) : next(name, args)) }
    : DIAGNOSTICS_ONLY;
  const start = async () => {
    await client?.dispose();
    client = await startClient(middleware);
  };
  context.subscriptions.push(
    preview,
    vscode.commands.registerCommand('prompty.showPreview', () => showPreview()),
    vscode.commands.registerCommand('prompty.restart', start),
    vscode.commands.registerCommand('prompty.run', (uri: string) => runInTerminal('run', uri)),
    vscode.commands.registerCommand('prompty.test', (uri: string, name?: string) => runInTerminal('test', uri, name)),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration('prompty.python')) {
        void start();
      }
    }),
  );
  await start();
  return { showPreview };
}

export async function deactivate(): Promise<void> {
  await client?.dispose();
}

async function startClient(middleware: Middleware): Promise<LanguageClient | undefined> {
  const found = await findServer();
  if (found === undefined) {
    void offerSettings();
    return undefined;
  }
  const options: LanguageClientOptions = { documentSelector: SELECTOR, middleware, outputChannelName: 'Prompty' };
  const server = { command: found.command, args: [...found.args, 'lsp'] };
  const started = new LanguageClient('prompty', 'Prompty', server, options);
  await started.start();
  return started;
}

async function offerSettings(): Promise<void> {
  const open = 'Open Settings';
  if ((await vscode.window.showErrorMessage(ADVICE, open)) === open) {
    await vscode.commands.executeCommand('workbench.action.openSettings', 'prompty.python');
  }
}

function findServer(resource?: vscode.Uri): Promise<Command | undefined> {
  const setting = vscode.workspace.getConfiguration('prompty', resource).get<string>('python', '');
  return findCommand(setting, () => findEnvironment(resource));
}

/** Return the Python of the environment that the Python extension has chosen. */
async function findEnvironment(resource?: vscode.Uri): Promise<string | undefined> {
  const api = await vscode.extensions.getExtension('ms-python.python')?.activate();
  const chosen = api?.environments?.getActiveEnvironmentPath(resource);
  const environment = chosen && (await api.environments.resolveEnvironment(chosen));
  return environment?.executable?.uri?.fsPath;
}

async function askForPreview(uri: string, inputs: Record<string, unknown>): Promise<Preview> {
  if (client === undefined) {
    throw new Error('The server does not run.');
  }
  return client.sendRequest(ExecuteCommandRequest.type, { command: 'prompty.preview', arguments: [uri, { inputs }] });
}

/** Run a command on a file in the terminal, where a person can answer questions of a tool or give inputs. */
async function runInTerminal(verb: 'run' | 'test', uri: string, name?: string): Promise<void> {
  const file = vscode.Uri.parse(uri);
  const found = await findServer(file);
  if (found === undefined) {
    return offerSettings();
  }
  await vscode.workspace.textDocuments.find((document) => document.uri.toString() === file.toString())?.save();
  const chosen = name === undefined ? [] : ['-k', `'${name}'`];
  const task = new vscode.Task(
    { type: 'process' },
    vscode.workspace.getWorkspaceFolder(file) ?? vscode.TaskScope.Workspace,
    `${verb} ${path.basename(file.fsPath)}`,
    'prompty',
    new vscode.ProcessExecution(found.command, [...found.args, verb, file.fsPath, ...chosen], { cwd: path.dirname(file.fsPath) }),
  );
  task.presentationOptions = { reveal: vscode.TaskRevealKind.Always, clear: true };
  await vscode.tasks.executeTask(task);
}
