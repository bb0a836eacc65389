import assert from 'node:assert/strict';
import { test } from 'node:test';
import { renderPreview, renderProblem } from '../src/page';

const preview = {
  messages: [
    { role: 'system', content: 'Be <b>short</b>.' },
    { role: 'user', content: [{ kind: 'text', value: 'Hi & bye' }, { kind: 'image', source: 'a.png' }] },
  ],
  request: { url: 'https://api.example/v1', body: { model: '"><script>' }, dropped: { topK: 'unknown' }, refused: null },
  cost: { inputTokens: 12, dollars: 0.00042 },
};

test('the page has messages, cost and request in this order', () => {
  const page = renderPreview(preview);
  const order = ['Be &lt;b&gt;short', 'Hi &amp; bye', 'a.png', 'About 12 tokens to send, $0.00042.', 'topK', 'https://api.example/v1'];
  const places = order.map((text) => page.indexOf(text));
  assert.ok(places.every((place) => place > 0), String(places));
  assert.deepEqual(places, [...places].sort((a, b) => a - b));
});

test('a prompt cannot add markup', () => {
  const page = renderPreview(preview) + renderProblem('<img src=x>');
  assert.ok(!/<(script|img|b)\b/.test(page));
  assert.ok(page.includes("default-src 'none'"));
});

test('a price that is unknown is not zero', () => {
  const page = renderPreview({ ...preview, cost: { inputTokens: 12, dollars: null } });
  assert.ok(page.includes('The price is unknown'));
});
