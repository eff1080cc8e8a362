"""The console in a real browser: what is shown, that it lives, that nothing in a message does."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock

from .conftest import SMALL, Browser, Console, running, until

EVIL = '<img src=x onerror="window.broken=1"><script>window.broken=2</script>\'"&amp;'


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Queues as they are in life: at work, idle, with dead letters, inactive, damaged, and several as one."""
    root = tmp_path_factory.mktemp("console") / "queues"
    with penstock.QueueManager(root) as manager:
        manager.create("orders", depth=500, max_attempts=1, **SMALL)
        for name in ("idle", "closed-for-now", "damaged"):
            manager.create(name, **SMALL)
        manager.create_macro("both", ["orders", "idle"])
        manager.deactivate("closed-for-now")
        with manager.open("orders") as q:
            q.put({"order": 7, "lines": [1, 2]}, type="order", key="acme.example", priority=9, headers={"tenant": "eu"})
            q.put(EVIL, type=EVIL, key=EVIL, headers={EVIL: EVIL}, priority=8)
            q.put(b"\xff\x00\xfe", type="picture", priority=7)
            q.put(EVIL, type="poison", priority=9, delay=0.001)
            q.get(type="poison", timeout=5).fail(RuntimeError(EVIL))
            q.put_many([f"more {n}" for n in range(60)], type="bulk")
    kernel = root / "damaged" / "kernel"
    kernel.write_bytes(bytes(64) + kernel.read_bytes()[64:])
    yield root


@pytest.fixture(scope="module")
def console(root: Path) -> Iterator[Console]:
    with running(root) as started:
        yield started


@pytest.fixture(autouse=True)
def no_complaints(browser: Browser, console: Console) -> Iterator[None]:
    """However a test went through the page: no error in it, and nothing was asked for elsewhere."""
    browser.size(1280)
    browser.scheme("light")
    browser.errors()
    browser.requests()
    yield
    assert browser.run("return window.broken ?? 0") == 0
    assert browser.errors() == []
    asked = [url for url in browser.requests() if url.startswith("http")]
    assert all(url.startswith(console.url) for url in asked), asked


def test_all_queues_are_listed_with_their_states(browser: Browser, console: Console) -> None:
    browser.go(console.url)
    browser.sees("orders", ".queues")
    rows = browser.run(
        "return [...document.querySelectorAll('.queues tbody tr')].map(row => "
        "[row.querySelector('.name').textContent, row.querySelector('.state').textContent, "
        "row.querySelectorAll('td')[2].innerText])"
    )
    assert rows == [
        ["both", "configured", "63"],
        ["closed-for-now", "inactive", "0"],
        ["damaged", "failed", "–"],
        ["idle", "configured", "0"],
        ["orders", "configured", "63"],
        ["orders.dead", "configured", "1"],
    ]
    assert "dead letters of orders" in browser.text(".dead-queue")
    assert "macro queue of orders, idle" in browser.text(".queues")
    tiles = browser.text(".tiles").replace("\n", " ")
    assert "Waiting 63" in tiles  # those of the macro queue are counted once
    assert "Dead letters 1" in tiles and "Queues 6 1 failed" in tiles


def test_queues_are_found_by_name_and_state_and_sorted(browser: Browser, console: Console) -> None:
    browser.go(console.url)
    browser.sees("orders", ".queues")
    typed = (
        "const box = document.querySelector('.search'); box.value = arguments[0]; box.dispatchEvent(new Event('input'))"
    )
    names = "return [...document.querySelectorAll('.queues .name')].map(each => each.textContent)"
    browser.run(typed, "FAILED")
    until(lambda: browser.run(names) == ["damaged"], "the failed one alone")
    browser.run(typed, "no such thing")
    browser.sees("No queue is called that")
    browser.run(typed, "")
    browser.run("[...document.querySelectorAll('th button')].find(each => each.textContent === 'Waiting').click()")
    until(lambda: browser.run(names)[:3] == ["both", "orders", "orders.dead"], "the fullest first")
    assert browser.run("return document.querySelector('th[aria-sort]').innerText").startswith("Waiting")


def test_a_queue_at_work_moves_its_figures_and_plots(browser: Browser, console: Console, root: Path) -> None:
    browser.go(f"{console.url}#/queues/idle")
    browser.sees("waiting", ".legend")
    drawn = "return [...document.querySelectorAll('.plot path.line')].map(each => each.getAttribute('d'))"
    until(lambda: len(browser.run(drawn)) == 7, "all lines")
    before = browser.run(drawn)
    with producing(root / "idle"):
        until(lambda: browser.text(".tile:nth-child(1) dd span") not in ("0", "–"), "messages that wait")
        until(
            lambda: float(browser.text(".tile:nth-child(3) dd span").replace(",", "").replace("–", "0")) > 0,
            "a rate of puts",
        )
        until(lambda: browser.run(drawn)[0] != before[0] and len(browser.run(drawn)[0]) > 60, "another curve")
        browser.sees("1", ".tile:nth-child(8) dd")  # the producer
    labels = browser.run("return [...document.querySelectorAll('.canvas text')].map(each => each.textContent)")
    assert "0" in labels and any(":" in label for label in labels)  # both axes
    browser.run(
        "const svg = document.querySelector('.canvas svg'), box = svg.getBoundingClientRect();"
        "svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.right - 30, clientY: box.top + 50}))"
    )
    assert "waiting" in browser.text(".tip")
    browser.run("document.querySelector('.canvas svg').dispatchEvent(new PointerEvent('pointerleave'))")
    assert browser.run("return document.querySelector('.tip').hidden")
    browser.run(
        "const svg = document.querySelector('.canvas svg'); svg.focus();"
        "svg.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft'}))"
    )
    assert "waiting" in browser.text(".tip")


@contextlib.contextmanager
def producing(path: Path) -> Iterator[None]:
    """Somebody puts all the time, and gets some of it."""
    ended = threading.Event()

    def work() -> None:
        with penstock.open(path) as q:
            while not ended.wait(0.02):
                q.put_many([b"x"] * 3, timeout=1)
                for message in q.get_many(2):
                    message.ack()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_message_is_shown_with_all_that_it_says(browser: Browser, console: Console) -> None:
    browser.go(f"{console.url}#/queues/orders")
    browser.sees("acme.example", ".messages")
    browser.run("document.querySelector('.messages tbody a').click()")
    browser.sees("acme.example", ".drawer")
    shown = browser.text(".drawer")
    assert '"order": 7' in browser.text(".drawer pre.text")
    assert "tenant" in shown and "eu" in shown and "Priority\n9" in shown and "JSON, " in shown
    browser.run("document.querySelector('.drawer [value=hex]').click()")
    assert "00000000  7b 22 6f 72" in browser.text(".drawer pre.hex")
    browser.run("document.querySelector('.drawer .button').click()")
    until(lambda: browser.run("return location.hash") == "#/queues/orders", "the way back")


def test_what_a_message_brings_does_nothing_in_the_page(browser: Browser, console: Console) -> None:
    browser.go(f"{console.url}#/queues/orders")
    browser.sees(EVIL, ".messages")
    browser.run("document.querySelectorAll('.messages tbody a')[1].click()")
    browser.sees(EVIL, ".drawer pre.text")
    assert browser.text(".drawer").count(EVIL) == 5  # type, body, key, name and value of a header
    assert browser.run("return document.querySelectorAll('main img, .drawer img, .drawer script').length") == 0
    browser.go(f"{console.url}#/queues/{'%3Cimg%20src%3Dx%20onerror%3Dwindow.broken%3D3%3E'}")
    browser.sees("<img src=x", "h1")
    browser.sees("There is no such queue now", ".banner")
    browser.errors()  # the browser notes that the answer was 404


def test_dead_letters_have_their_reasons(browser: Browser, console: Console) -> None:
    browser.go(f"{console.url}#/queues/orders")
    until(lambda: "Dead letters (1)" in browser.text("[role=tablist]"), "how many there are")
    browser.run("document.querySelector('[role=tab]:last-child').click()")
    browser.sees("max_attempts", ".messages")
    browser.run("document.querySelector('.messages tbody a').click()")
    browser.sees("RuntimeError", ".drawer .reason")
    assert EVIL in browser.text(".drawer .reason")
    assert "dead letter" in browser.text(".drawer") and "Came from" in browser.text(".drawer")


def test_many_messages_come_page_by_page(browser: Browser, console: Console) -> None:
    browser.go(f"{console.url}#/queues/orders")
    browser.sees("1 to 25", "#messages .pager")
    browser.run("document.querySelector('#messages .pager button:last-child').click()")
    browser.sees("26 to 50", "#messages .pager")
    browser.run("document.querySelector('#messages .pager button:last-child').click()")
    browser.sees("51 to 63", "#messages .pager")
    assert browser.run("return document.querySelector('#messages .pager button:last-child').disabled")


@pytest.mark.parametrize("scheme, width", [("dark", 1280), ("light", 360), ("dark", 360), ("light", 1920)])
def test_it_is_legible_in_light_and_dark_wide_and_narrow(
    browser: Browser, console: Console, scheme: str, width: int
) -> None:
    browser.size(width)
    browser.scheme(scheme)
    browser.go(console.url)
    browser.sees("orders", ".queues")
    assert browser.overflow() <= 0
    assert_legible(browser, ["body", ".tile dt", ".queues .name", ".state.failed", ".tile.bad dd", ".tile .sub"])
    browser.go(f"{console.url}#/queues/orders")
    browser.sees("acme.example", ".messages")
    assert browser.overflow() <= 0
    assert_legible(browser, ["h1", ".place", ".preview", ".legend span", "th", ".pill"])
    browser.run("document.querySelector('.messages tbody a').click()")
    browser.sees("acme.example", ".drawer")
    assert browser.run("const d = document.querySelector('.drawer'); return d.scrollWidth - d.clientWidth") <= 0


CONTRAST = """
const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
  .map((each) => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
  .reduce((sum, each, i) => sum + each * [0.2126, 0.7152, 0.0722][i], 0);
const element = document.querySelector(arguments[0]);
if (!element) return 99;
let behind = element;
while (behind && (rgb(getComputedStyle(behind).backgroundColor)[3] ?? 1) < 1) behind = behind.parentElement;
const a = light(rgb(getComputedStyle(element).color));
const b = light(rgb(getComputedStyle(behind ?? document.body).backgroundColor));
return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
"""


def assert_legible(browser: Browser, selectors: list[str]) -> None:
    """Contrast as the accessibility guidelines ask for it, 4.5 to 1."""
    for selector in selectors:
        assert browser.run(CONTRAST, selector) >= 4.5, selector


def test_news_move_nothing_on_the_page(browser: Browser, console: Console, root: Path) -> None:
    browser.go(console.url)
    browser.sees("orders", ".queues")
    places = (
        "return [...document.querySelectorAll('.queues td, .tile')]"
        ".map(each => Math.round(each.getBoundingClientRect().x))"
    )
    before = browser.run(places)
    figures = browser.text(".queues")
    with producing(root / "idle"):
        until(lambda: browser.text(".queues") != figures, "news")
        assert browser.run(places) == before


def test_the_page_outlives_the_console_and_its_queues(browser: Browser, console: Console, tmp_path: Path) -> None:
    penstock.QueueManager(tmp_path / "more").create("passing", **SMALL)
    with running(tmp_path / "more") as first:
        browser.go(first.url)
        browser.sees("passing", ".queues")
        assert first.end() == 130
        browser.sees("no answer", "#live")
        assert "passing" in browser.text(".queues")
        with running(tmp_path / "more", port=first.port):
            browser.sees("live", "#live.on")
            browser.run("location.hash = '#/queues/passing'")
            browser.sees("Nothing waits", "#messages")
            shutil.rmtree(tmp_path / "more" / "passing")
            browser.sees("There is no such queue now", ".banner")
            browser.run("location.hash = '#/'")
            browser.sees("There are no queues here yet")
    browser.errors()  # that it was not reached, and that the queue was not found
    browser.requests()


def test_it_can_be_used_with_the_keyboard(browser: Browser, console: Console) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.go(f"{console.url}#/queues/orders")
    browser.sees("acme.example", ".messages")
    browser.run("document.querySelector('.messages tbody a').focus()")
    ActionChains(browser.driver).send_keys(Keys.ENTER).perform()
    browser.sees("acme.example", ".drawer")
    assert browser.run("return document.querySelector('.drawer').contains(document.activeElement)")
    ActionChains(browser.driver).send_keys(Keys.ESCAPE).perform()
    until(lambda: browser.run("return location.hash") == "#/queues/orders", "closed by Escape")
