"""What may be pickled and copied, and what says that it may not."""

import copy
import multiprocessing
import pickle
from pathlib import Path

import pytest

import penstock
from tests.conftest import Queues


def test_a_queue_goes_to_another_process_as_one_more_client(queue: Queues) -> None:
    q = queue()
    process = multiprocessing.get_context("spawn").Process(target=q.put, args=("from another process",))
    process.start()
    assert q.get(timeout=30).body == "from another process"
    process.join()
    assert process.exitcode == 0


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda q: pickle.loads(pickle.dumps(q))])
def test_a_copy_of_a_queue_is_another_client(queue: Queues, make) -> None:
    q = queue()
    q.put("x")
    message = q.get(block=False)
    with make(q) as other:
        assert len(q.stats().clients) == 2
        with pytest.raises(penstock.LeaseLost):
            other.ack(message)
    message.ack()


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_message_and_a_closed_queue_say_that_they_cannot_be_copied(queue: Queues, make) -> None:
    q = queue()
    q.put("x")
    message = q.get(block=False)
    for _ in range(2):
        with pytest.raises(TypeError, match="body or its id"):
            make(message)
        q.close()
    with pytest.raises(penstock.QueueClosed):
        make(q)


def test_the_parts_of_a_queue_cannot_be_copied(queue: Queues) -> None:
    client = queue()._mine()
    for part in (client, client.words, client.kernel, client.files, client.kernel.order, client.kernel.ring):
        with pytest.raises(TypeError):
            pickle.dumps(part)


class Louder(penstock.TimeQueue):
    def qsize(self) -> int:
        return 1000 + super().qsize()


def test_a_subclass_is_pickled_as_what_it_is(tmp_path: Path) -> None:
    penstock.create(tmp_path / "queue").close()
    with Louder(tmp_path / "queue") as q, pickle.loads(pickle.dumps(q)) as again:
        assert type(again) is Louder and again.qsize() == 1000
