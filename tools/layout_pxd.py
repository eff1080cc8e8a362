"""Write ``layout.pxd``, the numbers of ``layout.py`` as C constants for the compiled core. ``--check`` compares."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from penstock.store import layout  # noqa: E402

TARGET = ROOT / "src/penstock/store/layout.pxd"


def text() -> str:
    """Numbers that fit an int are C enumerators; larger ones are macros, since an enumerator turns into a Python int as
    an int."""
    numbers = {name: value for name, value in vars(layout).items() if name.isupper() and isinstance(value, int)}
    large = {name: value for name, value in numbers.items() if value > 0x7FFFFFFF}
    lines = ["# Written by tools/layout_pxd.py from layout.py: change that, then run this again.", "cdef enum:"]
    lines += [f"    {name} = {value:#x}" for name, value in numbers.items() if name not in large]
    lines += ["", "cdef extern from *:", '    """']
    lines += [f"    #define PENSTOCK_{name} {value:#x}ULL" for name, value in large.items()]
    lines += ['    """']
    lines += [f'    const unsigned long long {name} "PENSTOCK_{name}"' for name in large]
    return "\n".join(lines) + "\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        return 0 if TARGET.read_text() == text() else 1
    TARGET.write_text(text())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
