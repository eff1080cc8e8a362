"""A queue of each released format version, as it was written then, is read by every later version."""

import tarfile
from pathlib import Path

import pytest

import penstock
from penstock.timequeue import check_queue
from tests.golden.make import BODIES

ARCHIVES = sorted(Path(__file__).parent.glob("format-*.tar.xz"))


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_a_queue_of_this_format_version_is_read(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)  # since 3.11.4
        tar.extractall(tmp_path)
    path = tmp_path / "queue"
    assert [finding.what for finding in check_queue(path)] == ["to be restored: copied"]
    with penstock.open(path) as queue:
        messages = {message.number: message for message in queue.browse()}
        assert [messages[number].body for number in sorted(messages)] == BODIES
        later = next(message for message in messages.values() if message.body == b"later")
        assert (later.deliver_us, later.priority) == (4_000_000_000_250_000, 3)
        text = next(message for message in messages.values() if message.body == "text")
        assert (text.type, text.key, text.headers) == ("note", "example.com", {"a": "b"})
        first = queue.get(block=False)
        assert (first.body, first.attempts) == (b"important", 2)
        queue.ack_many([first, *queue.get_many(10)])
        assert [message.body for message in queue.browse()] == [b"later"]
        assert queue.put(b"new") not in [message.id for message in messages.values()]
    assert check_queue(path) == []


def test_there_is_an_archive_of_the_current_version() -> None:
    from penstock.store import layout

    assert f"format-{layout.FORMAT}.tar.xz" in [archive.name for archive in ARCHIVES]
