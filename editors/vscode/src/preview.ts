// The preview panel: messages, request and estimated cost of the text in the editor, saved or not.
import { randomBytes } from 'node:crypto';
import * as vscode from 'vscode';
import { Field, Preview, readEntered, renderForm, renderPage, renderPreview, renderProblem } from './page';

const DELAY = 150; // milliseconds after the last keystroke

type Inputs = Record<string, unknown>;

export class PreviewPanel implements vscode.Disposable {
  private panel: vscode.WebviewPanel | undefined;
  private source = '';
  private entered: Inputs = {};
  private fields: Field[] = [];
  private shown = ''; // the fields in the form, without the values that a person has entered
  private timer: NodeJS.Timeout | undefined;
  private readonly changes: vscode.Disposable;

  constructor(private readonly ask: (uri: string, inputs: Inputs) => Promise<Preview>) {
    // A partial or a test file can change the preview as well.
    this.changes = vscode.workspace.onDidChangeTextDocument(() => this.refreshSoon());
  }

  /** Show the preview of a prompt, and return what the panel says below the form. */
  async show(uri: string): Promise<string> {
    if (uri !== this.source) {
      this.entered = {};
    }
    this.source = uri;
    if (this.panel === undefined) {
      const place = { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true };
      const options = { enableScripts: true, localResourceRoots: [], retainContextWhenHidden: true };
      this.panel = vscode.window.createWebviewPanel('prompty.preview', 'Preview', place, options);
      this.panel.webview.onDidReceiveMessage((message) => this.enter(message));
      this.panel.onDidDispose(() => (this.panel = undefined));
      this.shown = '';
    }
    this.panel.title = `Preview ${vscode.Uri.parse(uri).path.split('/').at(-1)}`;
    return this.refresh();
  }

  private enter({ name, entered }: { name: string; entered: unknown }): void {
    const field = this.fields.find((one) => one.name === name);
    if (field !== undefined) {
      this.entered[name] = readEntered(field, entered);
      this.shown = this.describeForm();
      this.refreshSoon();
    }
  }

  private refreshSoon(): void {
    clearTimeout(this.timer);
    if (this.panel !== undefined) {
      this.timer = setTimeout(() => void this.refresh(), DELAY);
    }
  }

  private async refresh(): Promise<string> {
    let result: string;
    try {
      const preview = await this.ask(this.source, this.entered);
      this.fields = preview.fields;
      result = renderPreview(preview);
    } catch (error) {
      result = renderProblem(error instanceof Error ? error.message : String(error));
    }
    this.update(result);
    return result;
  }

  /** Replace the result. The form is only written again if it has changed, for a person may be typing in it. */
  private update(result: string): void {
    const form = this.describeForm();
    if (form === this.shown) {
      void this.panel?.webview.postMessage({ result });
    } else if (this.panel !== undefined) {
      this.shown = form;
      this.panel.webview.html = renderPage(renderForm(this.fields), result, randomBytes(16).toString('hex'));
    }
  }

  private describeForm(): string {
    return JSON.stringify(this.fields.map((field) => (field.name in this.entered ? { ...field, value: null } : field)));
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.changes.dispose();
    this.panel?.dispose();
  }
}
