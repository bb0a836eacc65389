import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Field, readEntered, renderForm, renderPage, renderPreview, renderProblem } from '../src/page';

const preview = {
  messages: [
    { role: 'system', content: 'Be <b>short</b>.' },
    { role: 'user', content: [{ kind: 'text', value: 'Hi & bye' }, { kind: 'image', source: 'a.png' }] },
  ],
  request: { url: 'https://api.example/v1', body: { model: '"><script>' }, dropped: { topK: 'unknown' }, refused: null },
  cost: { inputTokens: 12, dollars: 0.00042 },
  fields: [],
};
const field = (kind: string, value: unknown, choices: unknown[] | null = null): Field => ({ name: 'a', kind, value, choices, description: null });

test('the page has messages, cost and request in this order', () => {
  const page = renderPreview(preview);
  const order = ['Be &lt;b&gt;short', 'Hi &amp; bye', 'a.png', 'About 12 tokens to send, $0.00042.', 'topK', 'https://api.example/v1'];
  const places = order.map((text) => page.indexOf(text));
  assert.ok(places.every((place) => place > 0), String(places));
  assert.deepEqual(places, [...places].sort((a, b) => a - b));
});

test('a prompt cannot add markup or run a script', () => {
  const odd = { ...field('string', '</textarea><img src=x>'), name: '"><script>', description: '" onclick="x' };
  const form = renderForm([odd, field('string', 'x', ['x', '"><b>'])]);
  const page = renderPage(form, renderPreview(preview) + renderProblem('<img src=x>'), '0123');
  assert.ok(!/<(img|b)\b/.test(page));
  assert.ok(!/<[^>]* on\w+=/.test(page.replace(/"[^"]*"/g, '""')));
  assert.equal(page.match(/<script/g)?.length, 1);
  assert.ok(page.includes(`default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-0123'"`));
});

test('each kind has its control', () => {
  assert.match(renderForm([field('string', 'a\nb')]), /<textarea rows="2" id="field0" name="a">\na\nb<\/textarea>/);
  assert.match(renderForm([field('integer', 3)]), /<input type="number" step="1" .* value="3">/);
  assert.match(renderForm([field('float', 0.5)]), /<input type="number" step="any" .* value="0.5">/);
  assert.match(renderForm([field('boolean', true)]), /<input type="checkbox" .* checked>/);
  assert.match(renderForm([field('string', 'b', ['a', 'b'])]), /<option value="b" selected>b<\/option>/);
  assert.match(renderForm([field('array', [1])]), /\[\n {2}1\n\]<\/textarea>/);
  assert.equal(renderForm([]), '');
});

test('what was entered becomes a value of its kind, or stays text', () => {
  assert.equal(readEntered(field('string', ''), '36'), '36');
  assert.equal(readEntered(field('integer', 1), '36'), 36);
  assert.equal(readEntered(field('integer', 1), 'many'), 'many');
  assert.equal(readEntered(field('boolean', true), false), false);
  assert.equal(readEntered(field('integer', 1, [1, 2]), '2'), 2);
  assert.deepEqual(readEntered(field('array', []), '["a"]'), ['a']);
  assert.equal(readEntered(field('image', 'a.png'), 'b.png'), 'b.png');
});

test('a price that is unknown is not zero', () => {
  const page = renderPreview({ ...preview, cost: { inputTokens: 12, dollars: null } });
  assert.ok(page.includes('The price is unknown'));
});
