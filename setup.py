"""Build the compiled core, if that can be done here.

Every module with a .pxd beside its .py is compiled by Cython. This is optional: whatever goes wrong,
one line says so and the package is installed interpreted. PENSTOCK_PURE=1 does not try at all;
PENSTOCK_PURE=0 insists, is stricter, and a failing build then fails with the compiler's output.
"""

import contextlib
import os
import re
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SRC = Path("src")
HEADERS = str(SRC / "penstock" / "store")
PURE = os.environ.get("PENSTOCK_PURE", "")
JOBS = os.cpu_count() or 1

FLAGS = ["-g0", "-fno-strict-aliasing"]
if "-O" not in os.environ.get("CFLAGS", ""):  # with CFLAGS=-O0 it is built in a quarter of the time, for tests
    FLAGS.append("-O2")
if PURE == "0":
    # A constant of C is an int, in Python it is not; a method of a C class is not a plain function.
    FLAGS += ["-Werror=shift-count-overflow", "-Werror=overflow", "-Werror=incompatible-pointer-types"]

# Modules whose .pxd has their numbers or functions again, for C.
NOT_COMPILED = {"penstock.store.checksum", "penstock.store.layout", "penstock.store.syscalls"}

DIRECTIVES = {
    "language_level": "3",
    "annotation_typing": False,
    "cdivision": True,
    "initializedcheck": False,
    "infer_types": True,
    "auto_pickle": False,  # a copy of a pointer into a mapping would be no copy
}


def hot_modules():
    """The extension modules: every X.py with an X.pxd beside it."""
    for pxd in sorted((SRC / "penstock").rglob("*.pxd")):
        source = pxd.with_suffix(".py")
        name = ".".join(source.relative_to(SRC).with_suffix("").parts)
        if source.exists() and source.stem != "__init__" and name not in NOT_COMPILED:
            yield Extension(name, [str(source)], include_dirs=[HEADERS], extra_compile_args=FLAGS)


@contextlib.contextmanager
def output_to(log):
    """Send everything this process and its children print to the file `log`."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        os.dup2(file, 1)
        os.dup2(file, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for fd in (file, *saved):
            os.close(fd)


def reason(error, log):
    """One line for why the build failed: the first error in the log, or else the exception."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    found = [line.strip() for line in lines if "error:" in line]
    # Cython prints its errors as file:line:column: message.
    found += [line.strip() for line in lines if line.startswith(str(SRC)) and line.count(":") >= 3]
    text = found[0] if found else str(error) or type(error).__name__
    text = re.sub(r"^Command '\['([^']*)'.*\]' ", r"\1 ", text)
    return " ".join(text.split())[:200]


class OptionalBuild(build_ext):
    def run(self):
        log = Path(self.build_temp, "compile.log")
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        inplace = self.inplace
        self.parallel = self.parallel or JOBS
        try:
            with output_to(log):
                self.translate()
                super().run()
        except (Exception, SystemExit) as error:
            if PURE == "0":
                sys.stderr.write(log.read_text(errors="replace"))
                raise
            self.inplace = inplace  # which a failing run() leaves changed
            self.discard()
            line = f"compiled core not built ({reason(error, log)}); the interpreted core will be used"
            print(f"penstock: {line}", file=sys.stderr)

    def translate(self):
        """From .py and .pxd to .c, below the build directory."""
        from Cython.Build import cythonize

        done = cythonize(
            [Extension(e.name, list(e.sources)) for e in self.extensions],
            build_dir=self.build_temp,
            include_path=[str(SRC)],
            compiler_directives=DIRECTIVES,
            force=True,
            nthreads=JOBS,
        )
        sources = {e.name: e.sources for e in done}
        for extension in self.extensions:
            extension.sources = sources[extension.name]

    def discard(self):
        """All or nothing: a half-built core, or one of an earlier build, must not stay behind."""
        for extension in self.extensions:
            built = self.get_ext_filename(self.get_ext_fullname(extension.name))
            Path(self.build_lib, built).unlink(missing_ok=True)
            if self.inplace:
                Path(SRC, built).unlink(missing_ok=True)
        self.extensions = []


if PURE == "1":
    for stale in (SRC / "penstock").rglob("*.so"):  # of an earlier editable install
        stale.unlink()

setup(
    ext_modules=[] if PURE == "1" else list(hot_modules()),
    cmdclass={"build_ext": OptionalBuild},
)
