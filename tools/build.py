"""Build the compiled core for the running Python; print the directory to put on PYTHONPATH.

That is build/compiled-<python> (a copy of the package with its compiled modules), or src where the
core cannot be compiled. The compiler runs only when something it reads has changed.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
TAG = sys.implementation.cache_tag
LIB = ROOT / "build" / f"compiled-{TAG}"
TEMP = ROOT / "build" / f"temp-{TAG}"
STAMP = LIB / ".stamp"


def fingerprint():
    """Of everything the compiled modules are made from."""
    digest = hashlib.sha256(sys.version.encode())
    for name in ("CC", "CFLAGS", "LDFLAGS"):
        digest.update(f"{name}={os.environ.get(name)}\n".encode())
    pxds = sorted(SRC.rglob("*.pxd"))
    hot = [pxd.with_suffix(".py") for pxd in pxds]
    for path in [ROOT / "setup.py", ROOT / "requirements" / "build.txt", *sorted(SRC.rglob("*.h")), *pxds, *hot]:
        if path.exists():
            digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def extensions():
    return list(LIB.rglob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"))


def compile_core():
    """Fill LIB with the compiled modules; say whether there are any."""
    now = fingerprint()
    if STAMP.exists() and STAMP.read_text() == now and extensions():
        return True
    shutil.rmtree(LIB, ignore_errors=True)
    print("penstock: compiling the core...", file=sys.stderr, flush=True)
    command = [sys.executable, "setup.py", "-q", "build_ext", "--force"]
    command += ["--build-lib", str(LIB.relative_to(ROOT)), "--build-temp", str(TEMP.relative_to(ROOT))]
    if subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False).returncode:
        sys.exit("penstock: the build failed")
    if not extensions():
        return False
    STAMP.write_text(now)
    return True


def copy_sources():
    """Make the rest of LIB equal to SRC."""
    wanted = {
        path.relative_to(SRC)
        for path in [*(SRC / "penstock").rglob("*"), *SRC.glob("*.py")]
        if path.is_file() and path.suffix not in (".pyc", ".so", ".c")
    }
    for path in list((LIB / "penstock").rglob("*")):
        if path.is_file() and path.suffix not in (".pyc", ".so") and path.relative_to(LIB) not in wanted:
            path.unlink()
    for name in wanted:
        (LIB / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(SRC / name, LIB / name)


def main():
    if os.environ.get("PENSTOCK_PURE") == "1" or not compile_core():
        print(SRC)
    else:
        copy_sources()
        print(LIB)


main()
