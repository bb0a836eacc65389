// The preview panel: messages, request and estimated cost of the text in the editor, saved or not.
import * as vscode from 'vscode';
import { Preview, renderPreview, renderProblem } from './page';

const DELAY = 150; // milliseconds after the last keystroke

export class PreviewPanel implements vscode.Disposable {
  private panel: vscode.WebviewPanel | undefined;
  private source: string | undefined;
  private timer: NodeJS.Timeout | undefined;
  private readonly changes: vscode.Disposable;

  constructor(private readonly ask: (uri: string) => Promise<Preview>) {
    // A partial or a test file can change the preview as well.
    this.changes = vscode.workspace.onDidChangeTextDocument(() => this.refreshSoon());
  }

  async show(uri: string): Promise<string> {
    this.source = uri;
    if (this.panel === undefined) {
      const place = { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true };
      this.panel = vscode.window.createWebviewPanel('prompty.preview', 'Preview', place, { enableScripts: false });
      this.panel.onDidDispose(() => (this.panel = undefined));
    }
    this.panel.title = `Preview ${vscode.Uri.parse(uri).path.split('/').at(-1)}`;
    return this.refresh();
  }

  private refreshSoon(): void {
    clearTimeout(this.timer);
    if (this.panel !== undefined) {
      this.timer = setTimeout(() => void this.refresh(), DELAY);
    }
  }

  private async refresh(): Promise<string> {
    let page: string;
    try {
      page = renderPreview(await this.ask(this.source ?? ''));
    } catch (error) {
      page = renderProblem(error instanceof Error ? error.message : String(error));
    }
    if (this.panel !== undefined) {
      this.panel.webview.html = page;
    }
    return page;
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.changes.dispose();
    this.panel?.dispose();
  }
}
