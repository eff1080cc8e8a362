"""The page of a report in a real browser: wide and narrow, light and dark, with names as bad as they can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark import page
from penstock.spark.figures import Figures
from tests.reports import some

from .conftest import Browser


@pytest.mark.parametrize("width", [320, 360, 768, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("empty", [False, True], ids=["full", "empty"])
def test_nothing_is_wider_than_the_window(
    browser: Browser,
    tmp_path: Path,
    width: int,
    scheme: str,
    empty: bool,
) -> None:
    file = tmp_path / "report.html"
    found = some()
    file.write_text(page.html(Figures(title=found.title, made_s=found.made_s) if empty else found))
    browser.size(width)
    browser.scheme(scheme)
    browser.errors()
    browser.requests()
    browser.go(file.as_uri())
    assert browser.overflow() == 0
    cut = browser.run(
        "return [...document.querySelectorAll('section, td, .tiles div')].filter(each => each.offsetParent && "
        "each.scrollWidth > each.clientWidth + 1).map(each => each.outerHTML.slice(0, 80))"
    )
    assert cut == []
    outside = browser.run(
        "return [...document.querySelectorAll('svg text')].filter(each => each.getBoundingClientRect().width && "
        "(each.getBoundingClientRect().right > innerWidth || each.getBoundingClientRect().left < 0)).length"
    )
    assert outside == 0
    dark = browser.run("return getComputedStyle(document.body).backgroundColor").startswith("rgb(12,")
    assert dark == (scheme == "dark")
    assert browser.run("return window.broken ?? 0") == 0
    assert browser.errors() == []
    assert [url for url in browser.requests() if url.startswith("http")] == []
    if not empty:
        small = browser.run(
            "return Math.min(...[...document.querySelectorAll('svg text')].filter(each => "
            "each.getBoundingClientRect().width).map(each => each.getBoundingClientRect().height))"
        )
        assert small >= 9, "words of the plots shrink with the window"
