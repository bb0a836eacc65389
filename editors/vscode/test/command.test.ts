import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ADVICE, findCommand } from '../src/command';

const nothing = async () => undefined;
const chosen = async () => '/env/bin/python';

test('the setting comes first, and is not tried', async () => {
  const found = await findCommand('/my/python', chosen, async () => assert.fail());
  assert.deepEqual(found, { command: '/my/python', args: ['-I', '-m', 'prompty'] });
});

test('then the environment of the Python extension, if it has the package', async () => {
  const found = await findCommand('', chosen, async (command) => command === '/env/bin/python');
  assert.deepEqual(found, { command: '/env/bin/python', args: ['-I', '-m', 'prompty'] });
});

test('without either, there is no command, and nothing else is tried', async () => {
  const tried: string[] = [];
  const works = async (command: string) => tried.push(command) < 0;
  assert.equal(await findCommand('', nothing, works), undefined);
  assert.equal(await findCommand('', chosen, works), undefined);
  assert.deepEqual(tried, ['/env/bin/python']);
});

test('a Python is tried without the modules of the working folder', async () => {
  const tried: string[][] = [];
  await findCommand('', chosen, async (_, args) => tried.push(args) > 0);
  assert.deepEqual(tried.map((args) => args[0]), ['-I']);
});

test('a Python without the package is passed over', async () => {
  assert.equal(await findCommand('', async () => '/no/such/python'), undefined);
});

test('the advice installs the package with the extra that has the server', () => {
  assert.match(ADVICE, /pip install '[^']+\[cli\]'/);
});
