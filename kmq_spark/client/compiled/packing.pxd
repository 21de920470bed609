"""The layout of packed headers and properties, shared by the compiled modules."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t
from libc.string cimport memchr, memcpy

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size)

cdef enum:
    #: The members of `kmq_storage.format.records.PROPERTY_TYPE`, in order.
    INT, FLOAT, TEXT, BYTES, BOOL

#: The first bytes of a record's packed headers and properties. They are followed by each header's
#: name and value, then by each property's name, kind (one byte) and value. Text and bytes are
#: written as their length (four bytes, -1 for null) and the bytes themselves, a number as eight
#: bytes. Packed bytes never leave the process, so the machine's byte order is used.
cdef struct Head:
    int32_t partition  # -1: none was chosen
    int32_t size
    int32_t headers  # how many; -1: none were given, not even an empty mapping
    int32_t properties


cdef inline int32_t take_length(const char** at) noexcept:
    """Read the length at `at` and move `at` behind it."""
    cdef int32_t length
    memcpy(&length, at[0], 4)
    at[0] += 4
    return length


cdef inline bint begins_unlike(const char* data, Py_ssize_t length, bytes letters) noexcept:
    """Whether the data is not empty and its first byte is none of these letters."""
    return length and memchr(PyBytes_AS_STRING(letters), data[0], PyBytes_GET_SIZE(letters)) == NULL
