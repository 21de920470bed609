"""What packed headers and properties look like, for the modules that are compiled."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t
from libc.string cimport memchr, memcpy

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size)

cdef enum:
    #: The members of `kmq_storage.format.records.PROPERTY_TYPE`, in order.
    INT, FLOAT, TEXT, BYTES, BOOL

#: What a record's packed headers and properties begin with. Behind it stand the headers as name and
#: value, then the properties as name, kind (one byte) and value. A text or bytes is a length (four
#: bytes, -1 for null) and its bytes, a number eight bytes. No process writes it for another one.
cdef struct Head:
    int32_t partition  # -1: none was chosen
    int32_t size
    int32_t headers  # how many; -1: none were given, not even an empty mapping
    int32_t properties


cdef inline int32_t take_length(const char** at) noexcept:
    """The length that stands there, and go behind it."""
    cdef int32_t length
    memcpy(&length, at[0], 4)
    at[0] += 4
    return length


cdef inline bint begins_unlike(const char* data, Py_ssize_t length, bytes letters) noexcept:
    """Whether there is a first letter, and it is none of these."""
    return length and memchr(PyBytes_AS_STRING(letters), data[0], PyBytes_GET_SIZE(letters)) == NULL
