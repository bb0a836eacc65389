"""The settings of docs/how-to/editors.md in real editors: Neovim 0.7, Emacs 28 and Vim with ALE from Debian."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prompty.analysis.check import check
from scripts.pages import read_blocks
from scripts.run_page import make_environment
from tests.lsp.mistakes import MISTAKES

pytestmark = pytest.mark.process

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "editors.md"
SETTINGS = {block.title: block.text for block in read_blocks(PAGE) if block.title}
PACKAGES = {"nvim": "neovim", "emacs": "emacs-nox elpa-eglot", "vim.nox": "vim-nox vim-ale"}
SECONDS = 120.0

NEOVIM = """\
local function wait(state) assert(vim.wait(20000, state, 20), "waited in vain") end
local out = { version = vim.fn.execute("version"):match("NVIM v[%d%.]+"), files = {} }
for _, file in ipairs(vim.fn.glob("*.prompty", true, true)) do
  vim.cmd("edit " .. file)
  wait(function() return #vim.diagnostic.get(0) > 0 end)
  local found = {}
  for _, one in ipairs(vim.diagnostic.get(0)) do
    table.insert(found, { one.code, one.lnum + 1, one.col, one.end_lnum + 1, one.end_col })
  end
  out.files[file] = found
end
vim.cmd("edit key.prompty")
local params = vim.lsp.util.make_range_params()
params.range = { start = { line = 2, character = 0 }, ["end"] = { line = 2, character = 1 } }
params.context = { diagnostics = vim.lsp.diagnostic.get_line_diagnostics(0, 2) }
local _, answer = next(vim.lsp.buf_request_sync(0, "textDocument/codeAction", params, 20000))
vim.lsp.util.apply_workspace_edit(answer.result[1].edit, "utf-16")
wait(function() return #vim.diagnostic.get(0) == 0 end)
out.fixed = vim.fn.getline(3)
out.modified = vim.bo.modified
vim.cmd("edit! emoji.prompty")
local place = { line = 7, character = 20 } -- inside the last `name`, in UTF-16
local request = { textDocument = vim.lsp.util.make_text_document_params(), position = place, newName = "person" }
_, answer = next(vim.lsp.buf_request_sync(0, "textDocument/rename", request, 20000))
vim.lsp.util.apply_workspace_edit(answer.result, "utf-16")
out.renamed = vim.api.nvim_buf_get_lines(0, 0, -1, false)
vim.fn.writefile({ vim.json.encode(out) }, "seen.json")
vim.cmd("qa!")
"""

EMACS = """\
(require 'flymake)
(require 'json)
(setq eglot-send-changes-idle-time 0.05 eglot-sync-connect 20)
(defun wait-until (state)
  (let ((tries 0))
    (while (not (funcall state))
      (when (> (setq tries (1+ tries)) 1000) (error "waited in vain"))
      (accept-process-output nil 0.02))))
(defun place (position) (save-excursion (goto-char position) (list (line-number-at-pos) (- (point) (point-at-bol)))))
(defun describe (one)
  (vconcat (place (flymake-diagnostic-beg one)) (place (flymake-diagnostic-end one))))
(let (files)
  (dolist (file (directory-files "." nil "\\\\.prompty\\\\'"))
    (find-file file)
    (unless (eglot-managed-p) (call-interactively 'eglot))
    (eglot--maybe-activate-editing-mode)
    (flymake-mode 1)
    (flymake-start)
    (wait-until (lambda () (flymake-diagnostics)))
    (push (cons file (vconcat (mapcar 'describe (flymake-diagnostics)))) files))
  (with-temp-file "seen.json" (insert (json-encode (list (cons "version" emacs-version) (cons "files" files))))))
(kill-emacs 0)
"""

VIM = """\
let g:seen = {}
for file in glob('*.prompty', 0, 1)
  execute 'edit' file
  let tries = 0
  while empty(ale#engine#GetLoclist(bufnr(''))) && tries < 600
    sleep 30m
    let tries += 1
  endwhile
  let g:seen[file] = map(copy(ale#engine#GetLoclist(bufnr(''))), '[v:val.code, v:val.lnum]')
endfor
call writefile([json_encode(g:seen)], 'seen.json')
qa!
"""


def run_editor(folder: Path, program: str, *arguments: str) -> Any:
    """Write the mistakes into a folder, run an editor there, and return what it saw."""
    if shutil.which(program) is None and not os.environ.get("CI"):
        pytest.skip(f"{program} is not installed; run: apt-get install {PACKAGES[program]}")
    for name, text in MISTAKES.items():
        (folder / f"{name}.prompty").write_text(text, encoding="utf-8", newline="")
    environment = {**make_environment(folder, Path(sys.executable).parent), "TERM": "xterm"}
    done = subprocess.run(  # noqa: S603  an editor
        [program, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (folder / "seen.json").exists(), done.stdout + done.stderr
    return json.loads((folder / "seen.json").read_text(encoding="utf-8"))


def list_problems(folder: Path, name: str, *, in_bytes: bool = False) -> list[list[Any]]:
    """Return the problems of `prompty check`, with columns from 0 in characters or in bytes."""
    lines = MISTAKES[name].split("\n")

    def count(line: int, column: int) -> int:
        before = lines[line - 1][: column - 1]
        return len(before.encode() if in_bytes else before)

    return [
        [one.code, one.line, count(one.line, one.column), one.end_line, count(one.end_line, one.end_column)]
        for one in check(folder / f"{name}.prompty")
        if one.line and one.column and one.end_line and one.end_column
    ]


def test_neovim_shows_fixes_and_renames(tmp_path: Path) -> None:
    (tmp_path / "init.lua").write_text(SETTINGS["init.lua"])
    (tmp_path / "drive.lua").write_text(NEOVIM)
    seen = run_editor(tmp_path, "nvim", "--headless", "-n", "-u", "init.lua", "-S", "drive.lua", "-c", "qa!")
    for name in MISTAKES:
        expected = list_problems(tmp_path, name, in_bytes=True)
        assert sorted(seen["files"][f"{name}.prompty"]) == sorted(expected), name
    assert seen["fixed"] == "model: gpt-6-luna"
    assert seen["modified"]  # the fix is in the buffer, and the problem is gone before it is saved
    assert "  person: {kind: string}" in seen["renamed"]


def test_emacs_shows_the_problems(tmp_path: Path) -> None:
    (tmp_path / "init.el").write_text(f"(require 'package)\n(package-initialize)\n{SETTINGS['init.el']}")
    (tmp_path / "drive.el").write_text(EMACS)
    seen = run_editor(tmp_path, "emacs", "--batch", "-l", "init.el", "-l", "drive.el")
    for name in MISTAKES:
        found = sorted(seen["files"][f"{name}.prompty"])
        assert found == sorted(one[1:] for one in list_problems(tmp_path, name)), name


def test_vim_shows_the_problems(tmp_path: Path) -> None:
    (tmp_path / "vimrc").write_text(f"set nocompatible rtp^=/usr/share/vim-ale\n{SETTINGS['vimrc']}")
    (tmp_path / "drive.vim").write_text(VIM)
    seen = run_editor(tmp_path, "vim.nox", "-N", "-n", "-i", "NONE", "-u", "vimrc", "-S", "drive.vim")
    for name in MISTAKES:
        assert sorted(seen[f"{name}.prompty"]) == sorted(one[:2] for one in list_problems(tmp_path, name)), name
