// Does in VS Code what a person does, and posts what it saw to the address in driver.json of the workspace.
const fs = require('node:fs');
const path = require('node:path');
const vscode = require('vscode');

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function until(what, state) {
  for (let tries = 0; tries < 1200; tries++) {
    const value = await state();
    if (value) return value;
    await sleep(50);
  }
  throw new Error(`waited in vain for ${what}`);
}

const show = (range) => [range.start.line, range.start.character, range.end.line, range.end.character];

exports.activate = async () => {
  const folder = vscode.workspace.workspaceFolders[0].uri.fsPath;
  const { url, files, isAlone } = JSON.parse(fs.readFileSync(path.join(folder, 'driver.json'), 'utf8'));
  const report = (seen) => fetch(url, { method: 'POST', body: JSON.stringify(seen) });
  const seen = { version: vscode.version };
  try {
    await (isAlone ? drive(folder, files, seen) : look(folder, seen));
  } catch (error) {
    seen.error = String(error?.stack ?? error);
  }
  await report(seen);
};

/** Note who answers about a prompt when another extension does so, too. */
async function look(folder, seen) {
  const uri = vscode.Uri.file(path.join(folder, 'greet.prompty'));
  const document = await vscode.workspace.openTextDocument(uri);
  await vscode.window.showTextDocument(document);
  const [problem] = await until('problems', () => vscode.languages.getDiagnostics(uri).length > 0 && vscode.languages.getDiagnostics(uri));
  seen.problem = [problem.source, problem.code.value, ...show(problem.range)];
  const place = document.positionAt(document.getText().indexOf('{{ who }}') + 4);
  const ask = (name, ...rest) => vscode.commands.executeCommand(`vscode.execute${name}Provider`, uri, ...rest);
  const hovers = await until('the other extension', async () => {
    const found = await ask('Hover', place);
    return found.length > 0 && found;
  });
  seen.hover = hovers.flatMap((one) => one.contents.map((part) => part.value));
  const own = [vscode.CompletionItemKind.Text, vscode.CompletionItemKind.Snippet]; // of the editor, and of files
  const items = (await ask('CompletionItem', place)).items.filter((one) => !own.includes(one.kind));
  seen.completion = items.map((one) => one.label.label ?? one.label);
  seen.others = [
    ...(await ask('CodeLens', 10)), ...(await ask('Definition', place)), ...(await ask('Reference', place)),
    ...((await ask('DocumentSymbol')) ?? []),
    ...(await ask('CodeAction', problem.range)).filter((one) => one.edit), // without an edit, the editor's own
  ].map((one) => JSON.stringify(one));
}

async function drive(folder, files, seen) {
  await vscode.commands.executeCommand('workbench.action.closeAuxiliaryBar'); // it hides the editor in pictures
  seen.files = {};
  for (const [name, isRight] of files) {
    const file = vscode.Uri.file(path.join(folder, name));
    await vscode.window.showTextDocument(file); // the client asks for the problems of what is visible
    const read = () => vscode.languages.getDiagnostics(file);
    await (isRight ? sleep(200) : until(`problems in ${name}`, () => read().length > 0));
    seen.files[name] = read().map((one) => [one.code?.value ?? one.code, ...show(one.range)]);
  }

  const uri = vscode.Uri.file(path.join(folder, 'greet.prompty'));
  const document = await vscode.workspace.openTextDocument(uri);
  const editor = await vscode.window.showTextDocument(document, vscode.ViewColumn.One);
  seen.language = document.languageId;
  const problem = await until('a problem', () => vscode.languages.getDiagnostics(uri)[0]);
  seen.link = problem.code?.target?.toString();

  const fixes = await vscode.commands.executeCommand('vscode.executeCodeActionProvider', uri, problem.range);
  seen.fixes = fixes.map((one) => one.title);
  await vscode.workspace.applyEdit(fixes[0].edit);
  await until('no problem', () => vscode.languages.getDiagnostics(uri).length === 0);

  const place = document.positionAt(document.getText().indexOf('{{ who }}') + 4);
  const hovers = await vscode.commands.executeCommand('vscode.executeHoverProvider', uri, place);
  seen.hover = hovers.flatMap((one) => one.contents.map((part) => part.value)).join('\n');
  const items = await vscode.commands.executeCommand('vscode.executeCompletionItemProvider', uri, place);
  seen.completion = items.items.map((one) => one.label.label ?? one.label);
  const renamed = await vscode.commands.executeCommand('vscode.executeDocumentRenameProvider', uri, place, 'person');
  await vscode.workspace.applyEdit(renamed);
  seen.renamed = document.getText();

  const typed = editor.edit((edit) => edit.insert(document.positionAt(document.getText().length), 'Words that are not saved.\n'));
  await typed;
  const lenses = await until('lenses', async () => {
    const found = await vscode.commands.executeCommand('vscode.executeCodeLensProvider', uri, 10);
    return found.length > 0 && found;
  });
  seen.lenses = lenses.map((one) => one.command.title);
  const named = (title) => lenses.find((one) => one.command.title === title).command;
  seen.preview = await vscode.commands.executeCommand(named('Preview').command, ...named('Preview').arguments);
  seen.dirty = document.isDirty;

  const ended = new Promise((resolve) => vscode.tasks.onDidEndTaskProcess((event) => resolve(event.exitCode)));
  await vscode.commands.executeCommand(named('Run').command, ...named('Run').arguments);
  seen.run = await ended;
}
