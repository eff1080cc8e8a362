"""A real console in a process of its own, a real Chromium, and queues with real producers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock

pytest.importorskip("starlette", reason="the console's libraries are not installed: pip install 'penstock[console]'")
pytest.importorskip("uvicorn", reason="the console's libraries are not installed: pip install 'penstock[console]'")

SMALL: dict[str, Any] = {"data_bytes": 256 << 10, "durability": "relaxed"}
INTERVAL_S = 0.2
PATIENCE_S = 20.0  # on a busy machine
SOURCE = str(Path(penstock.__file__).parents[1])


class Console:
    """``penstock console`` as a process."""

    def __init__(self, root: Path, *, port: int = 0) -> None:
        self.root = root
        words = ["console", root, "--port", port, "--interval", f"{INTERVAL_S}s"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": SOURCE},
        )
        self.url = self._address()
        self.port = int(self.url.rstrip("/").rpartition(":")[2])

    def _address(self) -> str:
        assert self.process.stdout is not None and self.process.stderr is not None
        select.select([self.process.stdout], [], [], PATIENCE_S)
        line = self.process.stdout.readline().decode()
        found = re.search(r"http://\S+", line)
        assert found, (line, self.process.stderr.read().decode() if self.process.poll() is not None else "")
        return found.group()

    def ask(self, path: str, **options: Any) -> tuple[int, Any, dict[str, str]]:
        """Status, JSON and headers of an answer."""
        request = urllib.request.Request(self.url + path.lstrip("/"), **options)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                data, status, headers = answer.read(), answer.status, dict(answer.headers)
        except urllib.error.HTTPError as error:
            data, status, headers = error.read(), error.code, dict(error.headers)
        lower = {name.lower(): value for name, value in headers.items()}
        return status, json.loads(data) if data and "json" in lower.get("content-type", "") else data, lower

    def told(self, path: str) -> Any:
        status, value, _ = self.ask(path)
        assert status == 200, value
        return value

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(PATIENCE_S)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return code


@contextlib.contextmanager
def running(root: Path, **options: Any) -> Iterator[Console]:
    console = Console(root, **options)
    try:
        yield console
    finally:
        if console.process.poll() is None:
            console.end()


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait for what another process does; that it takes long is no failure."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)
    return found


FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--disable-extensions",
    "--disable-default-apps", "--hide-scrollbars", "--force-device-scale-factor=1", "--lang=en",
)  # fmt: skip


class Browser:
    """One Chromium, driven through its own driver. Everything it asks for, and every error it logs, is noted."""

    def __init__(self, chromium: str, driver: str, profile: str) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.options import Options
        from selenium.webdriver.chrome.service import Service

        options = Options()
        options.binary_location = chromium
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver: Any = webdriver.Chrome(options=options, service=Service(driver))

    def run(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(script, *given)

    def go(self, url: str) -> None:
        self.driver.get("about:blank")  # a change of the part behind # alone would not load the page anew
        self.driver.get(url)

    def size(self, width: int, height: int = 800) -> None:
        given = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", given)

    def scheme(self, name: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def text(self, selector: str) -> str:
        """Of the first element that it selects, as shown; nothing if there is none."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def sees(self, words: str, selector: str = "body") -> None:
        until(lambda: words in self.text(selector), f"{words!r} in {selector}")

    def errors(self) -> list[str]:
        """What the page has complained about since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def requests(self) -> list[str]:
        """What was asked for over the network since the last time."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in sent]

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        return int(self.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    pytest.importorskip("selenium", reason="selenium is not installed: requirements/console.txt")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs Debian's packages chromium and chromium-driver: make test-deps")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        started = Browser(chromium, driver, profile)
        yield started
        started.driver.quit()
