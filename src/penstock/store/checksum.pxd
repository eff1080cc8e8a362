# The C side of checksum.py.
cdef extern from "checksum.h" nogil:
    unsigned int crc32 "penstock_crc32"(const unsigned char* data, size_t size, unsigned int start)
