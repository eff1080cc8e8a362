"""Drop-in queues for programs that use the standard library's: the same calls, on a directory that processes share.

``Queue(path, maxsize=0)`` is used as ``queue.Queue`` is, ``JoinableQueue(path, maxsize=0)`` as
``multiprocessing.JoinableQueue``. All that open the same path share items, the count of unfinished tasks, and shutdown.

**When an item is gone.** ``get`` takes it from the queue: nobody else gets it, it does not count in ``qsize``. Until
``task_done`` it stays leased to the process, for as long as that lives; if the process ends before, the item is back at
its old place. So the unfinished are those that wait and those that are leased, which the queue itself knows: no counter
can be wrong after a kill -9. ``task_done`` marks the item that the calling thread got first, else the one that the
process got first. A program that never calls it gives ``done_by="get"``: then ``get`` removes for good.

**What an item is.** bytes, str and JSON values that come back equal and of the same type are stored as such, and any
client of the queue can read them. All else is pickled. Whoever can write the directory can make a ``get`` that
unpickles run anything: do not open a queue that you do not trust, or do so with ``allow_pickle=False``.

**Shutdown** is as in Python 3.13, also on older versions, for all processes that have the queue open. It is over when
all of them have closed it or ended: whoever opens the queue next can put and get what is there.

**Durability** is "relaxed" unless you say otherwise: an item survives kill -9 of anything at once, and a power loss
after the next index sync (ten seconds). Users of ``queue.Queue`` expect speed, and had no durability at all;
``durability="commit"`` syncs every put.
"""

from queue import Empty, Full

from penstock.stdlib.queues import JoinableQueue, Queue, ShutDown

__all__ = ["Empty", "Full", "JoinableQueue", "Queue", "ShutDown"]
