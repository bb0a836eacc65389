// Writes the page of the preview panel. Free of `vscode`, so that tests run it in plain Node.

/** What the server's command `prompty.preview` returns. */
export interface Preview {
  messages: { role: string; content: unknown }[];
  request: {
    url: string;
    body: unknown;
    dropped?: Record<string, string>;
    refused?: string | null;
    notAsked?: string[];
  };
  cost: { inputTokens: number; dollars: number | null };
  fields: Field[];
}

/** An input, and its value in this preview. */
export interface Field {
  name: string;
  kind: string;
  description: string | null;
  choices: unknown[] | null;
  value: unknown;
}

const STYLE = `
body { font-family: var(--vscode-font-family); line-height: 1.45; max-width: 60em; }
section { border-left: 3px solid var(--vscode-panel-border); margin: 1em 0; padding: 0 1em; }
h2 { color: var(--vscode-descriptionForeground); font-size: 0.9em; margin: 0 0 0.3em; }
pre { background: none; font-family: var(--vscode-editor-font-family); margin: 0; overflow-wrap: anywhere; white-space: pre-wrap; }
form { display: grid; gap: 0.4em 1em; grid-template-columns: max-content minmax(0, 1fr); margin: 1em 0; }
input, select, textarea {
  background: var(--vscode-input-background); border: 1px solid var(--vscode-input-border, var(--vscode-panel-border));
  color: var(--vscode-input-foreground); font: inherit; justify-self: start; padding: 0.2em; width: 100%; box-sizing: border-box;
}
input[type=checkbox] { width: auto; }
.note { color: var(--vscode-descriptionForeground); }
.problem { color: var(--vscode-errorForeground); }
`;

// Sends what a person enters, and shows what comes back. The form stays, so that typing is not interrupted.
const SCRIPT = `
const editor = acquireVsCodeApi();
document.addEventListener('input', ({ target }) =>
  editor.postMessage({ name: target.name, entered: target.type === 'checkbox' ? target.checked : target.value }));
addEventListener('message', ({ data }) => { document.querySelector('main').innerHTML = data.result; });
`;

/** Return the page: a form for the inputs, and the result. */
export function renderPage(form: string, result: string, nonce: string): string {
  // It loads nothing and runs only the script above: a prompt may come from anyone.
  const policy = `default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-${nonce}'`;
  return `<!DOCTYPE html>
<html><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${policy}">
<style>${STYLE}</style></head><body>
${form}
<main>${result}</main>
<script nonce="${nonce}">${SCRIPT}</script>
</body></html>`;
}

/** Return the messages, the estimated cost and the request of a preview. */
export function renderPreview(preview: Preview): string {
  const messages = preview.messages.map(
    (message) => `<section><h2>${escape(message.role)}</h2><pre>${escape(showContent(message.content))}</pre></section>`,
  );
  const dropped = Object.entries(preview.request.dropped ?? {}).map(
    ([name, reason]) => `<p class="note">${escape(name)} is left out: ${escape(reason)}</p>`,
  );
  const notAsked = (preview.request.notAsked ?? []).map(
    (name) => `<p class="note">${escape(name)} is not asked for its functions</p>`,
  );
  const refused = preview.request.refused ? `<p class="problem">${escape(preview.request.refused)}</p>` : '';
  return [
    ...messages,
    `<p class="note">${escape(describeCost(preview.cost))}</p>`,
    refused,
    ...dropped,
    ...notAsked,
    `<details><summary>Request to ${escape(preview.request.url)}</summary>`,
    `<pre>${escape(JSON.stringify(preview.request.body, null, 2))}</pre></details>`,
  ].join('\n');
}

/** Return why there is no preview. */
export function renderProblem(message: string): string {
  return `<p class="problem">There is no preview yet.</p><pre>${escape(message)}</pre>`;
}

/** Return a form with a control for each input, by its kind. */
export function renderForm(fields: Field[]): string {
  const rows = fields.map((field, index) => {
    const title = field.description === null ? '' : ` title="${escape(field.description)}"`;
    return `<label for="field${index}"${title}>${escape(field.name)}</label>${renderControl(field, `id="field${index}" name="${escape(field.name)}"`)}`;
  });
  return rows.length === 0 ? '' : `<form>${rows.join('\n')}</form>`;
}

function renderControl(field: Field, attributes: string): string {
  const text = escape(write(field.value));
  if (field.choices !== null) {
    const options = field.choices.map((choice) => {
      const value = escape(write(choice));
      return `<option value="${value}"${value === text ? ' selected' : ''}>${value}</option>`;
    });
    return `<select ${attributes}>${options.join('')}</select>`;
  }
  switch (field.kind) {
    case 'boolean':
      return `<input type="checkbox" ${attributes}${field.value === true ? ' checked' : ''}>`;
    case 'integer':
    case 'float':
      return `<input type="number" step="${field.kind === 'float' ? 'any' : '1'}" ${attributes} value="${text}">`;
    default:
      return `<textarea rows="${Math.min(text.split('\n').length, 8)}" ${attributes}>\n${text}</textarea>`;
  }
}

/** Return the value of an input for what was entered in its control. What fits no value stays text: the server says why. */
export function readEntered(field: Field, entered: unknown): unknown {
  if (field.choices !== null) {
    return field.choices.find((choice) => write(choice) === entered) ?? entered;
  }
  if (field.kind === 'string' || typeof entered !== 'string') {
    return entered;
  }
  try {
    return JSON.parse(entered);
  } catch {
    return entered;
  }
}

function write(value: unknown): string {
  return typeof value === 'string' ? value : value === null || value === undefined ? '' : JSON.stringify(value, null, 2);
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

function escape(text: string): string {
  return text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/"/g, '&quot;');
}
