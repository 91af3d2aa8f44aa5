"""A real JupyterLab, a real kernel and a real Chromium for the browser tests."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import pytest

TOKEN = "npu-kit-browser-tests"
START_SECONDS = 60
CELL_MILLISECONDS = 120_000
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM_OPTIONS = (
    "--no-sandbox",  # Chromium refuses its sandbox to root, and CI runs as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
NO_NEWS = {"fetchNews": "false", "checkForUpdates": False}

RUN_ALL = """async () => {
  const { commands, shell } = window.jupyterapp;
  await commands.execute('notebook:run-all-cells');
  const cells = shell.currentWidget.content.widgets.filter((cell) => cell.model.type === 'code');
  return cells.map((cell) => ({
    source: cell.model.sharedModel.source.slice(0, 80),
    count: cell.model.executionCount,
    errors: cell.model.outputs.toJSON().filter((output) => output.output_type === 'error')
      .map((output) => `${output.ename}: ${output.evalue}`),
  }));
}"""
IS_READY = "() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.isReady"


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab, private to this test run."""

    address: str
    root: Path  # its files


@dataclass
class Lesson:
    """One notebook open in the browser, and what went wrong on its page."""

    page: Any
    lab: Lab
    external: list[str] = field(default_factory=list)  # addresses outside of this machine that were asked for
    errors: list[str] = field(default_factory=list)  # exceptions in the page, and errors that widgets logged

    def open(self, notebook: Path) -> Lesson:
        """Show a copy of ``notebook`` and wait for its kernel."""
        shutil.copy(notebook, self.lab.root)
        address = f"{self.lab.address}/doc/tree/{notebook.name}?token={TOKEN}&reset"
        self.page.goto(address, wait_until="domcontentloaded")
        self.page.wait_for_selector(".jp-NotebookPanel .jp-Notebook .jp-Cell")
        self.page.wait_for_function(IS_READY)
        return self

    def run_all(self) -> Lesson:
        """Run every cell; fails if one raises or does not run."""
        self.page.set_default_timeout(CELL_MILLISECONDS)
        cells = self.page.evaluate(RUN_ALL)
        self.page.set_default_timeout(30_000)
        wrong = [cell for cell in cells if not cell["count"] or cell["errors"]]
        assert cells, "the notebook has no code"
        assert not wrong, wrong
        return self

    def views(self) -> list[Any]:
        """The kit's views on the page, from top to bottom; waits until each has its pictures."""
        found = self.page.locator(".jp-OutputArea-output .npu-view")
        views = [found.nth(number) for number in range(found.count())]
        for view in views:
            view.scroll_into_view_if_needed()
            view.locator(".npu-picture svg").first.wait_for()
        return views

    def use_theme(self, name: str) -> None:
        """Switch to a theme of JupyterLab's, such as "JupyterLab Dark"."""
        self.page.evaluate("(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", name)
        is_light = "false" if "Dark" in name else "true"
        self.page.wait_for_selector(f"body[data-jp-theme-light='{is_light}']", state="attached")

    def assert_clean(self) -> None:
        """Nothing failed on the page, and nothing left this machine."""
        assert not self.errors, self.errors
        assert not self.external, self.external


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab whose settings, workspaces, kernels and files belong to this run alone."""
    home, root = tmp_path_factory.mktemp("lab-home"), tmp_path_factory.mktemp("lab-root")
    settings = home / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(NO_NEWS))
    folders = {
        "JUPYTER_CONFIG_DIR": home / "config",
        "JUPYTER_DATA_DIR": home / "data",
        "JUPYTER_RUNTIME_DIR": home / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": home / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
        "IPYTHONDIR": home / "ipython",
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, **{name: str(folder) for name, folder in folders.items()}, "PATH": path}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--expose-app-in-browser"),
        *("--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={root}"),
        *(f"--IdentityProvider.token={TOKEN}", "--LabApp.extension_manager=readonly"),
    ]
    log = home / "lab.log"
    with log.open("w") as output:
        server = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/api/status?token={TOKEN}", server, log)
        yield Lab(address, root)
    finally:
        server.terminate()
        server.wait(20)


def _wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        with contextlib.suppress(urllib.error.URLError):
            urllib.request.urlopen(address, timeout=1).close()
            return
        time.sleep(0.25)
    pytest.fail(f"JupyterLab did not start in {START_SECONDS} s:\n{log.read_text()[-2000:]}")


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium with a profile of its own; NPU_KIT_CHROMIUM says which, else the first on the path."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install --editable '.[browser]'")
    chromium = os.environ.get("NPU_KIT_CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if chromium is None:
        pytest.fail("no Chromium on this machine: install one, or set NPU_KIT_CHROMIUM to its path")
    with playwright.sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            str(tmp_path_factory.mktemp("profile")),
            executable_path=chromium,
            headless=True,
            args=list(CHROMIUM_OPTIONS),
            viewport={"width": 1280, "height": 900},
        )
        yield context
        context.close()


@pytest.fixture
def lesson(lab: Lab, browser: Any) -> Iterator[Lesson]:
    """A new page that writes down what goes wrong on it."""
    page = browser.new_page()
    page.set_default_timeout(30_000)
    opened = Lesson(page, lab)

    def note_request(request: Any) -> None:
        if request.url.startswith(("http", "ws")) and not request.url.split("://")[1].startswith("127.0.0.1:"):
            opened.external.append(request.url)

    def note_message(message: Any) -> None:
        if message.type == "error" and "widget" in message.text.lower():
            opened.errors.append(message.text)

    page.on("request", note_request)
    page.on("pageerror", lambda error: opened.errors.append(str(error)))
    page.on("console", note_message)
    yield opened
    page.close()


@pytest.fixture
def notebook(tmp_path: Path) -> Callable[..., Path]:
    """``notebook("name", cell, cell, ...)`` writes a notebook of code cells and returns its path."""

    def write(name: str, *sources: str) -> Path:
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        made = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": KERNEL})
        path = tmp_path / f"{name}.ipynb"
        path.write_text(nbformat.writes(made), encoding="utf-8")
        return path

    return write


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    """Where pictures of the page go: NPU_KIT_SCREENSHOTS, else a folder of this test."""
    folder = Path(os.environ.get("NPU_KIT_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
