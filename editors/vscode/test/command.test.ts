import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findCommand } from '../src/command';

const nothing = async () => undefined;
const chosen = async () => '/env/bin/python';

test('the setting comes first, and is not tried', async () => {
  const found = await findCommand('/my/python', chosen, async () => assert.fail());
  assert.deepEqual(found, { command: '/my/python', args: ['-m', 'prompty'] });
});

test('then the environment of the Python extension, if it has the package', async () => {
  const found = await findCommand('', chosen, async (command) => command === '/env/bin/python');
  assert.deepEqual(found, { command: '/env/bin/python', args: ['-m', 'prompty'] });
});

test('then uvx', async () => {
  for (const environment of [chosen, nothing]) {
    const found = await findCommand('', environment, async (command) => command === 'uvx');
    assert.deepEqual(found, { command: 'uvx', args: ['--from', 'prompty-runtime[cli]', 'prompty'] });
  }
});

test('without any of them, there is no command', async () => {
  assert.equal(await findCommand('', nothing, async () => false), undefined);
});

test('a Python without the package is passed over', async () => {
  const found = await findCommand('', async () => '/no/such/python');
  assert.notEqual(found?.command, '/no/such/python');
});
