"""A page's worth of figures for the tests of reports, and reading a page."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from penstock.spark.figures import Distribution, Failure, Figures, Group, Moment, Slow

EVIL = "<script>window.broken = 1</script>\"'&amp;</title><img src=x onerror='window.broken = 2'>"
HOURS = 3600.0


def some(**changes: Any) -> Figures:
    """A page's worth of figures, with names as long, and as bad, as they can be."""
    start_s = 1_794_000_000.0
    spread = Distribution(1000, 0.4, 0.05, 1.2, 44.0, 5400.0, {step: 10 + step * step for step in range(-9, 11)})
    groups = [
        Group(None, 90_000, 900, 800, 3, 0.01, 2.5),
        Group(EVIL, 1, 0, 0, 0, None, None),
        Group("x" * 300, 1_234_567, 765_432, 765_432, 12, 86_400.0, 200_000.0),
    ]
    slow = Slow(
        id="4f1b3f653fab4b63-1b-a97",
        queue="orders-with-a-rather-long-name",
        type=EVIL,
        key="k" * 200,
        result="dead-lettered",
        attempts=12,
        ended_s=start_s,
        total_s=5400.0,
        late_s=None,
        service_s=0.25,
    )
    said: dict[str, Any] = {
        "title": f"/var/lib/{'a-long-folder/' * 12}queues",
        "made_s": start_s + 5 * HOURS,
        "first_s": start_s,
        "last_s": start_s + 4 * HOURS,
        "step_s": 300,
        "results": {"acked": 123_456, "failed": 1200, "dead-lettered": 7, "expired": 1},
        "moments": [
            Moment(start_s + 300 * n, {"acked": 100 * n, "failed": n % 3, "gone": n % 7 == 0}) for n in range(48)
        ],
        "waiting": spread,
        "lateness": spread,
        "service": Distribution(),
        "types": groups,
        "keys": groups,
        "queues": [Group("/var/lib/queues/orders", 1, 2, 3, 4, 0.1, 0.2), Group("/a/b", 1, 2, 3, 4, 0.1, 0.2)],
        "slowest": [slow, slow],
        "failures": [Failure(EVIL, 3), Failure("no-spaces-at-all" * 12, 1)],
    }
    return Figures(**{**said, **changes})


class Words(HTMLParser):
    """The words of a page, and its elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words = ""
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += f" {data}"
