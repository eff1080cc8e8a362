"""What goes through the pipes of the synchronization component."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.store.fifos import FRAME_BYTES_MAX
from penstock.timequeue.syncframes import (
    RANGES_MAX,
    Confirmations,
    Request,
    Requests,
    answer_frame,
    confconf_frame,
    has_answer,
    request_frame,
)

WORD = st.integers(0, 2**64 - 1)
HALF = st.integers(0, 2**32 - 1)
RANGES = st.lists(st.tuples(WORD, WORD), min_size=1, max_size=RANGES_MAX)
REQUESTS = st.lists(st.tuples(HALF, HALF, WORD, RANGES), max_size=4)


@given(REQUESTS, st.integers(1, 5000))
def test_requests_arrive_however_the_stream_is_cut(sent: list, piece: int) -> None:
    data = b"".join(request_frame(*some) for some in sent)
    reader = Requests()
    found = [request for at in range(0, len(data), piece) for request in reader.take(data[at : at + piece])]
    assert found == [Request(client, channel, serial, tuple(ranges)) for client, channel, serial, ranges in sent]


@given(st.lists(st.tuples(HALF, HALF, WORD)), st.integers(1, 100))
def test_confirmations_of_confirmations_arrive_however_the_stream_is_cut(sent: list, piece: int) -> None:
    data = b"".join(confconf_frame(*some) for some in sent)
    reader = Confirmations()
    found = [one for at in range(0, len(data), piece) for one in reader.take(data[at : at + piece])]
    assert found == sent


@given(st.lists(st.tuples(st.integers(0, 2**64 - 2), HALF)))
def test_answers_arrive(sent: list) -> None:
    data = b"".join(answer_frame(*some) for some in sent)
    assert all(has_answer(data, serial) for serial, _ in sent)
    assert not has_answer(data, max((serial for serial, _ in sent), default=0) + 1)


@given(st.binary(max_size=300))
def test_bytes_of_others_are_no_requests(data: bytes) -> None:
    reader = Requests()
    assert reader.take(data) == []
    Confirmations().take(data)
    assert not has_answer(data, 7)


def test_after_bytes_of_others_the_next_requests_are_read() -> None:
    reader = Requests()
    assert reader.take(b"something else altogether" * 10) == []
    assert len(reader.take(request_frame(1, 0, 1, [(0, 256)]))) == 1


def test_every_frame_is_written_whole_or_not_at_all() -> None:
    many = [(at * 1024, 256) for at in range(RANGES_MAX)]
    assert len(request_frame(1, 0, 1, many)) <= FRAME_BYTES_MAX
    more = request_frame(1, 0, 1, [*many, (7 << 40, 256)])
    assert len(more) <= FRAME_BYTES_MAX
    assert Requests().take(more) == [Request(1, 0, 1, ((0, (7 << 40) + 256),))]
