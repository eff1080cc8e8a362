"""Bytes on disk: layouts, files, the kernel with its journal, the ring, recovery. Knows nothing of programs' calls."""
