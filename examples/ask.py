"""A ticket office: travellers ask for prices and wait for the answers, clerks reply, a queue is all they share.

Travellers and clerks are processes that know nothing of each other. One clerk is killed with a question in hand:
another one answers it. One traveller is killed while it waits: whoever comes back for it has the answer by the
question's id. At the end everybody has got the answer to the own question, and no answer is left over.

    python examples/ask.py --travellers 3 --questions 40 --clerks 2
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import penstock

TOWNS = ("Aarhus", "Brno", "Cork", "Delft", "Espoo", "Florence", "Ghent", "Hull")
PATIENCE_S = 30.0

_processes = multiprocessing.get_context("spawn")  # nothing is inherited but the queue's path


def price_of(town: str) -> int:
    return 5 * sum(map(ord, town)) % 190 + 9


def answer_questions(path: str, doom: str) -> None:
    """One clerk. Whoever finds ``doom`` with a question in hand is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us ends us
    with penstock.open(path) as queue:
        while True:
            question = queue.get()
            if _doomed(doom):
                os.kill(os.getpid(), signal.SIGKILL)
            question.reply({"town": question.body["to"], "euros": price_of(question.body["to"])})


def _doomed(doom: str) -> bool:
    try:
        os.unlink(doom)  # only one can
    except FileNotFoundError:
        return False
    return True


def ask(path: str, traveller: int, questions: int, heard: Any) -> None:
    """One traveller: some questions one by one, the others all at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    right = 0
    with penstock.open(path) as queue:
        towns = [TOWNS[(traveller + n) % len(TOWNS)] for n in range(questions)]
        for town in towns[::2]:
            answer = queue.put({"to": town}, model="two-way", timeout=PATIENCE_S)
            right += answer == {"town": town, "euros": price_of(town)}
        handles = [(town, queue.put({"to": town}, model="two-way", wait=False)) for town in towns[1::2]]
        for town, handle in handles:
            right += handle.result(timeout=PATIENCE_S) == {"town": town, "euros": price_of(town)}
    heard.put(right)


def ask_and_die(path: str, note: str) -> None:
    """A traveller who writes down the number of its question, and is not there for the answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with penstock.open(path) as queue:
        handle = queue.put({"to": "Brno"}, model="two-way", wait=False)
        while handle.id is None:
            time.sleep(0.001)
        Path(note).write_text(handle.id)
        os.kill(os.getpid(), signal.SIGKILL)


def start(pool: list[Any]) -> None:
    """All of them; an interrupt waits until there is none half started."""
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    for process in pool:
        process.start()
    signal.signal(signal.SIGINT, before)
    if interrupts:
        raise KeyboardInterrupt


def run(folder: Path, travellers: int, questions: int, clerks: int) -> int:
    path, doom, note = folder / "office", folder / "doom", folder / "note"
    with penstock.create(path, slots=1000, data_bytes=1 << 20, durability="relaxed") as queue:
        heard = _processes.SimpleQueue()
        office = [_processes.Process(target=answer_questions, args=(str(path), str(doom))) for _ in range(clerks)]
        guests = [
            _processes.Process(target=ask, args=(str(path), number, questions, heard)) for number in range(travellers)
        ]
        unlucky = _processes.Process(target=ask_and_die, args=(str(path), str(note)))
        doom.touch()
        try:
            start([unlucky])
            unlucky.join()  # before there is a clerk: nobody is to have the answer
            start([*office, *guests])
            while not any(process.exitcode for process in office):
                time.sleep(0.005)
            print("a clerk is killed with a question in hand; another one gets it", flush=True)
            for process in guests:
                process.join()
            right = 0
            while not heard.empty():
                right += heard.get()
            brno = queue.answer(note.read_text()).result(timeout=PATIENCE_S)
            print(f"the traveller who died had asked for {brno['town']}: {brno['euros']} euros, kept for whoever asks")
        finally:
            for process in (*office, *guests, unlucky):
                if process.pid is not None:
                    process.kill()
                    process.join()
        print(f"{right} of {travellers * questions} questions have got their own answer")
        return 0 if right == travellers * questions and queue.qsize() == 0 else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--travellers", type=int, default=3)
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--clerks", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.travellers < 1 or arguments.questions < 4 or arguments.clerks < 2:
        parser.error("at least 1 traveller, 4 questions and 2 clerks")
    with tempfile.TemporaryDirectory(prefix="penstock-ask-") as folder:
        return run(Path(folder), arguments.travellers, arguments.questions, arguments.clerks)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
