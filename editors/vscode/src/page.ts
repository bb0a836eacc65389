// Writes the page of the preview panel. Free of `vscode`, so that tests run it in plain Node.

/** What the server's command `prompty.preview` returns. */
export interface Preview {
  messages: { role: string; content: unknown }[];
  request: { url: string; body: unknown; dropped?: Record<string, string>; refused?: string | null };
  cost: { inputTokens: number; dollars: number | null };
}

const STYLE = `
body { font-family: var(--vscode-font-family); line-height: 1.45; max-width: 60em; }
section { border-left: 3px solid var(--vscode-panel-border); margin: 1em 0; padding: 0 1em; }
h2 { color: var(--vscode-descriptionForeground); font-size: 0.9em; margin: 0 0 0.3em; }
pre { background: none; font-family: var(--vscode-editor-font-family); margin: 0; overflow-wrap: anywhere; white-space: pre-wrap; }
.note { color: var(--vscode-descriptionForeground); }
.problem { color: var(--vscode-errorForeground); }
`;

/** Return the messages, the estimated cost and the request of a preview. */
export function renderPreview(preview: Preview): string {
  const messages = preview.messages.map(
    (message) => `<section><h2>${escape(message.role)}</h2><pre>${escape(showContent(message.content))}</pre></section>`,
  );
  const dropped = Object.entries(preview.request.dropped ?? {}).map(
    ([name, reason]) => `<p class="note">${escape(name)} is left out: ${escape(reason)}</p>`,
  );
  const refused = preview.request.refused ? `<p class="problem">${escape(preview.request.refused)}</p>` : '';
  return renderPage(
    [
      ...messages,
      `<p class="note">${escape(describeCost(preview.cost))}</p>`,
      refused,
      ...dropped,
      `<details><summary>Request to ${escape(preview.request.url)}</summary>`,
      `<pre>${escape(JSON.stringify(preview.request.body, null, 2))}</pre></details>`,
    ].join('\n'),
  );
}

/** Return a page that says why there is no preview. */
export function renderProblem(message: string): string {
  return renderPage(`<p class="problem">There is no preview yet.</p><pre>${escape(message)}</pre>`);
}

function describeCost(cost: Preview['cost']): string {
  const tokens = `About ${cost.inputTokens} tokens to send`;
  return cost.dollars === null ? `${tokens}. The price is unknown.` : `${tokens}, $${cost.dollars.toPrecision(2)}.`;
}

function showContent(content: unknown): string {
  if (typeof content === 'string') {
    return content;
  }
  const parts = Array.isArray(content) ? content : [content];
  return parts.map(showPart).join('\n');
}

function showPart(part: unknown): string {
  const value = (part as { value?: unknown } | null)?.value;
  return typeof value === 'string' ? value : JSON.stringify(part, null, 2);
}

function renderPage(body: string): string {
  // The page runs nothing and loads nothing: a prompt may come from anyone.
  const policy = "default-src 'none'; style-src 'unsafe-inline'";
  return `<!DOCTYPE html>
<html><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${policy}">
<style>${STYLE}</style></head><body>
${body}
</body></html>`;
}

function escape(text: string): string {
  return text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/"/g, '&quot;');
}
