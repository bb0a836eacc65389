"""The settings of docs/how-to/editors.md in real editors: Neovim 0.7, Emacs 28 and Vim with ALE from Debian."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scripts.pages import read_blocks
from scripts.run_page import make_environment
from tests.lsp.corpus import SAMPLES, find_problems
from tests.lsp.mistakes import MISTAKES

pytestmark = [pytest.mark.process, pytest.mark.nightly]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "editors.md"
SETTINGS = {block.title: block.text for block in read_blocks(PAGE) if block.title}
PACKAGES = {"nvim": "neovim", "emacs": "emacs-nox elpa-eglot", "vim.nox": "vim-nox vim-ale"}
SECONDS = 400.0

NEOVIM = """\
local function wait(state) assert(vim.wait(20000, state, 20), "waited in vain in " .. vim.fn.expand("%")) end
local out = { files = {} }
for _, line in ipairs(vim.fn.readfile("files.txt")) do
  local file, is_right = line:gsub(" is right$", "")
  vim.cmd("edit " .. file)
  if is_right == 1 then
    vim.wait(300, function() return #vim.diagnostic.get(0) > 0 end, 20)
  else
    wait(function() return #vim.diagnostic.get(0) > 0 end)
  end
  local found = { "" } -- an empty table would be an object in JSON
  for _, one in ipairs(vim.diagnostic.get(0)) do
    table.insert(found, { one.code, one.lnum, one.col, one.end_lnum, one.end_col })
  end
  out.files[file] = found
end
vim.cmd("edit key.prompty")
wait(function() return #vim.diagnostic.get(0) > 0 end)
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
(setq eglot-sync-connect 60)
(defun place (position)
  (save-excursion (goto-char position) (vector (1- (line-number-at-pos)) (- (point) (point-at-bol)))))
(defun describe (one)
  (let ((spec (alist-get 'eglot-lsp-diag (flymake-diagnostic-data one))))
    (vector (plist-get spec :code) (place (flymake-diagnostic-beg one)) (place (flymake-diagnostic-end one)))))
(defun ask-for-fixes () ; answered after the diagnostics
  (let* ((start '(:line 0 :character 0))
         (range (list :textDocument (eglot--TextDocumentIdentifier) :range (list :start start :end start))))
    (jsonrpc-request (eglot--current-server-or-lose) :textDocument/codeAction
                     (append range '(:context (:diagnostics []))) :timeout 60)))
(let (files)
  (dolist (file (with-temp-buffer (insert-file-contents "files.txt") (split-string (buffer-string) "\\n" t)))
    (find-file file)
    (eglot--maybe-activate-editing-mode)
    (unless (eglot-managed-p) (call-interactively 'eglot))
    (ask-for-fixes)
    (flymake-mode 1)
    (flymake-start)
    (push (cons file (vconcat (mapcar 'describe (flymake-diagnostics)))) files)
    (kill-buffer))
  (with-temp-file "seen.json" (insert (json-encode files))))
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


class Place(NamedTuple):
    """A range in the units of an editor."""

    code: str
    start: tuple[int, int]
    end: tuple[int, int]


def write_samples(folder: Path) -> dict[str, list[Place]]:
    """Write a hundred files, and return the problems of `prompty check` in each. Columns count characters."""
    found = {}
    for number, sample in enumerate(SAMPLES.values()):
        file = sample.write(folder / str(number))
        problems = [problem for problem in find_problems(file) if Path(problem.path).name == file.name]
        found[f"{number}/{file.name}"] = [
            Place(one.code, (one.line - 1, one.column - 1), (one.end_line - 1, one.end_column - 1)) for one in problems
        ]
    return found


def run_editor(folder: Path, files: Iterable[str], program: str, *arguments: str) -> Any:
    """Run an editor in a folder, and return what it saw in these files."""
    if shutil.which(program) is None and not os.environ.get("CI"):
        pytest.skip(f"{program} is not installed; run: apt-get install {PACKAGES[program]}")
    for name, text in MISTAKES.items():
        (folder / f"{name}.prompty").write_text(text, encoding="utf-8", newline="")
    (folder / "files.txt").write_text("".join(f"{file}\n" for file in files))
    done = subprocess.run(  # noqa: S603  an editor
        [program, *arguments],
        cwd=folder,
        env={**make_environment(folder, Path(sys.executable).parent), "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (folder / "seen.json").exists(), done.stdout + done.stderr
    return json.loads((folder / "seen.json").read_text(encoding="utf-8"))


def count_units(folder: Path, file: str, place: Place, encoding: str) -> Place:
    """Return a place as an editor counts: Neovim in bytes of UTF-8, ALE in units of UTF-16."""
    lines = (folder / file).read_bytes().decode().replace("\r\n", "\n").split("\n")

    def count(position: tuple[int, int]) -> tuple[int, int]:
        line, column = position
        return line, len(lines[line][:column].encode(encoding)) // len("a".encode(encoding))

    return Place(place.code, count(place.start), count(place.end))


def test_neovim_shows_fixes_and_renames(tmp_path: Path) -> None:
    (tmp_path / "init.lua").write_text(SETTINGS["init.lua"])
    (tmp_path / "drive.lua").write_text(NEOVIM)
    expected = write_samples(tmp_path)
    command = ("nvim", "--headless", "-n", "-u", "init.lua", "-S", "drive.lua", "-c", "qa!")
    files = [file if places else f"{file} is right" for file, places in expected.items()]
    seen = run_editor(tmp_path, files, *command)
    for file, places in expected.items():
        shown = [Place(code, (line, column), (*end,)) for code, line, column, *end in seen["files"][file][1:]]
        assert sorted(shown) == sorted(count_units(tmp_path, file, place, "utf-8") for place in places), file
    assert seen["fixed"] == "model: gpt-6-luna"
    assert seen["modified"]  # the fix is in the buffer, and the problem is gone before it is saved
    assert "  person: {kind: string}" in seen["renamed"]


def test_emacs_shows_the_problems(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()  # one project, so one server
    (tmp_path / "init.el").write_text(f"(require 'package)\n(package-initialize)\n{SETTINGS['init.el']}")
    (tmp_path / "drive.el").write_text(EMACS)
    expected = write_samples(tmp_path)
    seen = run_editor(tmp_path, expected, "emacs", "--batch", "-l", "init.el", "-l", "drive.el")
    for file, places in expected.items():
        empty = {place.code for place in places if place.start == place.end}  # Emacs shows a word there, or nothing
        shown = [Place(code, (*start,), (*end,)) for code, start, end in seen[file] if code not in empty]
        assert sorted(shown) == sorted(place for place in places if place.code not in empty), file


def test_vim_shows_the_problems(tmp_path: Path) -> None:
    (tmp_path / "vimrc").write_text(f"set nocompatible rtp^=/usr/share/vim-ale\n{SETTINGS['vimrc']}")
    (tmp_path / "drive.vim").write_text(VIM)
    command = ("vim.nox", "-N", "-n", "-i", "NONE", "-u", "vimrc", "-S", "drive.vim")
    seen = run_editor(tmp_path, (), *command)
    for name in MISTAKES:
        problems = find_problems(tmp_path / f"{name}.prompty")
        assert sorted(seen[f"{name}.prompty"]) == sorted([one.code, one.line] for one in problems), name
