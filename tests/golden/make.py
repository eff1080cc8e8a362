"""Write ``format-1.tar.xz``, a queue as this version makes it. Run once for each format version, then never again:

PYTHONPATH=src python -m tests.golden.make
"""

import tarfile
import tempfile
from pathlib import Path

import penstock

BODIES = [b"ready", "text", {"json": [1, None, "ä"]}, b"x" * 700, b"later", b"important"]


def make(path: Path) -> None:
    with penstock.create(path, slots=16, data_bytes=16384, spill_bytes=600, durability="relaxed") as queue:
        queue.put(b"acknowledged")
        queue.get(block=False).ack()
        queue.put(BODIES[0])
        queue.put(BODIES[1], type="note", key="example.com", headers={"a": "b"})
        queue.put(BODIES[2])
        queue.put(BODIES[3])
        queue.put(BODIES[4], deliver_at=4_000_000_000.25, priority=3)
        queue.put(BODIES[5], priority=15)
        queue.get(block=False).release()  # one attempt


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder) / "queue")
        with tarfile.open(Path(__file__).parent / "format-1.tar.xz", "w:xz") as archive:
            archive.add(Path(folder) / "queue", "queue", filter=anonymous)


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
