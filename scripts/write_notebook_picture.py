"""Write the picture of a notebook (`docs/images/notebook.png`): the cells of the page, run, in JupyterLab and Chromium.

python -m venv build/jupyter && build/jupyter/bin/pip install jupyterlab
python -m scripts.write_notebook_picture build/jupyter/bin/jupyter-lab
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import nbformat
from nbclient import NotebookClient

from scripts.model_server import serve_replies
from scripts.pages import DOCS, REPLIES, get_fixtures, read_blocks, save_page
from tests.viewer.browser import Browser, Page, chromium

PAGE = DOCS / "how-to" / "notebooks.md"
PICTURE = DOCS / "images" / "notebook.png"
CELLS = ("show_prompt.py", "show_result.py")
NAME = "greet.ipynb"
_SECONDS = 120


def run_cells(folder: Path) -> None:
    """Write a notebook with the cells of the page and their outputs."""
    save_page(PAGE, folder)
    programs = {block.title: block.text.strip() for block in read_blocks(PAGE)}
    make: Any = nbformat.v4  # its functions have no types
    notebook = make.new_notebook(cells=[make.new_code_cell(programs[name]) for name in CELLS])
    with serve_replies(get_fixtures(PAGE) / REPLIES) as url:
        os.environ |= {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "sk-of-a-test"}
        NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}).execute()
    (folder / NAME).write_text(make.writes(notebook), encoding="utf-8")


def take_picture(program: str, folder: Path) -> None:
    """Open the notebook in JupyterLab, without its panels, and write the picture."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = [f"--ServerApp.port={port}", "--no-browser", "--allow-root", "--IdentityProvider.token="]
    with subprocess.Popen([program, *options], cwd=folder, stderr=subprocess.DEVNULL) as server:  # noqa: S603  it was named
        try:
            _wait_for(port)
            browser = Browser(chromium() or "chromium", folder / "profile")
            target = browser.call("Target.createTarget", url="about:blank")["targetId"]
            session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            address = f"http://127.0.0.1:{port}/doc/tree/{NAME}"
            shown = "document.querySelectorAll('.jp-OutputArea-executeResult').length === 2"
            page = Page(browser, session, address, 1000, 640, "light", "document.body !== null")
            page.wait_for(shown, _SECONDS)
            page.evaluate("new Promise((done) => setTimeout(done, 3000))")  # fonts and the toolbar
            page.evaluate("document.querySelector('.Toastify')?.remove()")  # it offers news
            page.screenshot(PICTURE)
            browser.close()
        finally:
            server.terminate()


def _wait_for(port: int) -> None:
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nothing listens on port {port}")


if __name__ == "__main__":
    work = Path(gettempdir(), "greet")  # a short name, since the picture shows it
    work.mkdir()
    try:
        run_cells(work)
        take_picture(str(Path(sys.argv[1]).resolve()), work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
