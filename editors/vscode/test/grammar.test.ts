import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import * as oniguruma from 'vscode-oniguruma';
import { INITIAL, parseRawGrammar, Registry } from 'vscode-textmate';

const GRAMMAR = 'syntaxes/prompty.tmLanguage.json';
const WASM = 'node_modules/vscode-oniguruma/release/onig.wasm';
// A Markdown whose paragraphs, bold texts and fences swallow all rules but injections. The real one is VS Code's own.
const MARKDOWN = {
  scopeName: 'text.html.markdown',
  patterns: [
    { name: 'markup.fenced', begin: '^```', end: '^```' },
    { name: 'meta.paragraph', begin: '(^|\\G)(?=\\S)', while: '(^|\\G)(?=\\S)', patterns: [{ name: 'markup.bold', begin: '\\*\\*', end: '\\*\\*' }] },
  ],
};
const YAML = { scopeName: 'source.yaml', patterns: [{ name: 'entity.name.tag.yaml', match: '^\\s*\\w+(?=:)' }] };

async function tokenize(text: string): Promise<Map<string, string>> {
  await oniguruma.loadWASM(readFileSync(WASM));
  const onigLib = Promise.resolve({
    createOnigScanner: (sources: string[]) => new oniguruma.OnigScanner(sources),
    createOnigString: (value: string) => new oniguruma.OnigString(value),
  });
  const others: Record<string, object> = { [MARKDOWN.scopeName]: MARKDOWN, [YAML.scopeName]: YAML };
  const registry = new Registry({
    onigLib,
    loadGrammar: async (scope) =>
      parseRawGrammar(scope === 'source.prompty' ? readFileSync(GRAMMAR, 'utf8') : JSON.stringify(others[scope]), 'x.json'),
  });
  const grammar = await registry.loadGrammar('source.prompty');
  assert.ok(grammar);
  const found = new Map<string, string>();
  let stack = INITIAL;
  for (const line of text.split('\n')) {
    const result = grammar.tokenizeLine(line, stack);
    stack = result.ruleStack;
    for (const token of result.tokens) {
      found.set(line.slice(token.startIndex, token.endIndex).trim(), token.scopes.join(' '));
    }
  }
  return found;
}

test('templates and roles are found inside Markdown, and references inside the frontmatter', async () => {
  const scopes = await tokenize(
    ['---', 'name: a', 'key: ${env:KEY}', '---', 'system:', 'Some **bold {{ first | upper }}** text', 'user:', '```',
      '{% if second %}', '{# a note #}', '```'].join('\n'),
  );
  const expected = {
    name: 'entity.name.tag.yaml', KEY: 'variable.other.reference', system: 'keyword.control.role',
    first: 'variable.other', upper: 'support.function.filter', user: 'keyword.control.role', if: 'keyword.control.jinja',
    second: 'variable.other', 'a note': 'comment.block',
  };
  for (const [text, scope] of Object.entries(expected)) {
    assert.ok(scopes.get(text)?.includes(scope), `${text}: ${scopes.get(text)}`);
  }
});
