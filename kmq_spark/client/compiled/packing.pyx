# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Pack a record's headers and properties into bytes, and unpack them again.

`encoding.waiting_extras` calls these functions, and `packed_rows` reads the packed bytes.
Python code does the same work on machines without a compiler; the tests compare the two. Users
never see an error from this module: it returns None for unusual values, and the Python code then
handles them or raises the error that says what is wrong.
"""

from cpython.bytes cimport PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_CheckExact, PyDict_Next, PyDict_Size
from cpython.exc cimport PyErr_Clear
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow)

cdef enum:
    #: Longer headers and properties are left to the Python code: copying their bytes takes so long
    #: that the Python code adds little.
    MOST = 4096

cdef struct _Out:
    char* at
    char* end
    int32_t size


cdef inline bint _put(_Out* out, const void* data, Py_ssize_t length) noexcept:
    if out.end - out.at < length:
        return False
    memcpy(out.at, data, length)
    out.at += length
    return True


cdef inline bint _put_piece(_Out* out, const char* data, Py_ssize_t length) noexcept:
    cdef int32_t short = <int32_t>length
    out.size += short
    return length <= MOST and _put(out, &short, 4) and _put(out, data, length)


cdef const char* _utf8(object text, Py_ssize_t* length) noexcept:
    """The UTF-8 bytes of a str; NULL when it has lone surrogates, or is no str."""
    if not PyUnicode_CheckExact(text):
        return NULL
    cdef const char* data = PyUnicode_AsUTF8AndSize(text, length)
    if data == NULL:
        PyErr_Clear()
    return data


cdef bint _put_text(_Out* out, object text):
    cdef Py_ssize_t length
    cdef const char* data = _utf8(text, &length)
    return data != NULL and _put_piece(out, data, length)


cdef bint _is_unlike(object value, bytes letters):
    """Whether the value is a str with a first character that is none of these ASCII letters."""
    cdef Py_ssize_t length
    cdef const char* data = _utf8(value, &length)
    return data != NULL and begins_unlike(data, length, letters)


cdef bint _put_bytes(_Out* out, object value):
    return _put_piece(out, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))


cdef bint _put_header(_Out* out, object name, object value):
    cdef int32_t missing = -1
    if not _put_text(out, name):
        return False
    if value is None:
        return _put(out, &missing, 4)
    return _put_bytes(out, value) if PyBytes_CheckExact(value) else _put_text(out, value)


cdef bint _put_number(_Out* out, uint8_t kind, const void* number) noexcept:
    out.size += 8
    return _put(out, &kind, 1) and _put(out, number, 8)


cdef bint _put_property(_Out* out, object name, object value):
    cdef:
        uint8_t kind
        int overflow = 0
        int64_t whole
        double real
    if not _put_text(out, name) or not name:
        return False
    if PyLong_CheckExact(value):
        whole = PyLong_AsLongLongAndOverflow(value, &overflow)
        return not overflow and _put_number(out, INT, &whole)
    if PyFloat_CheckExact(value):
        real = PyFloat_AS_DOUBLE(value)
        return _put_number(out, FLOAT, &real)
    if value is True or value is False:
        whole = value is True
        return _put_number(out, BOOL, &whole)
    kind = BYTES if PyBytes_CheckExact(value) else TEXT
    if not _put(out, &kind, 1):
        return False
    return _put_bytes(out, value) if kind == BYTES else _put_text(out, value)


def pack(headers, properties, int partition, left_out=None, encode=None, bytes unlike=b""):
    """Pack headers and properties; None when the Python code has to handle them.

    Headers named in `left_out` are not packed. `encode` turns the value of a header into bytes. It
    is not called for text that begins with none of the letters of `unlike`, which is packed as is.
    """
    cdef:
        char space[MOST]
        _Out out
        Head* head = <Head*>space
        Py_ssize_t place = 0, given
        PyObject* name
        PyObject* value
        object key, held
    out.at, out.end, out.size = space + sizeof(Head), space + MOST, 0
    head.partition, head.headers, head.properties = partition, -1, -1
    if headers is not None:
        if not PyDict_CheckExact(headers):
            return None
        head.headers, given = 0, PyDict_Size(headers)
        while PyDict_Next(headers, &place, &name, &value):
            key, held = <object>name, <object>value
            if left_out is not None and key in left_out:
                continue
            if encode is not None and not _is_unlike(held, unlike):
                held = encode(held)
            if not _put_header(&out, key, held):
                return None
            head.headers += 1
        if PyDict_Size(headers) != given:  # `encode` or another thread may have changed it
            return None
        if left_out is not None and not head.headers:
            head.headers = -1
    if properties is not None:
        if not PyDict_CheckExact(properties):
            return None
        head.properties, place = 0, 0
        while PyDict_Next(properties, &place, &name, &value):
            if not _put_property(&out, <object>name, <object>value):
                return None
            head.properties += 1
    head.size = out.size
    return PyBytes_FromStringAndSize(space, out.at - space)


cdef object _text(const char** at):
    cdef int32_t length = take_length(at)
    at[0] += length
    return PyUnicode_DecodeUTF8(at[0] - length, length, NULL)


cdef object _bytes(const char** at):
    cdef int32_t length = take_length(at)
    if length < 0:
        return None
    at[0] += length
    return PyBytes_FromStringAndSize(at[0] - length, length)


cdef object _property(const char** at):
    cdef:
        uint8_t kind = (<uint8_t*>at[0])[0]
        int64_t whole
        double real
    at[0] += 1
    if kind == TEXT:
        return _text(at)
    if kind == BYTES:
        return _bytes(at)
    memcpy(&whole, at[0], 8)
    memcpy(&real, at[0], 8)
    at[0] += 8
    return real if kind == FLOAT else bool(whole) if kind == BOOL else whole


def unpack(bytes packed):
    """Return headers and properties (each a flat tuple of names and values), partition and size."""
    cdef:
        const char* at = PyBytes_AS_STRING(packed) + sizeof(Head)
        Head* head = <Head*>PyBytes_AS_STRING(packed)
        list headers = [], properties = []
    for _ in range(head.headers):
        headers += (_text(&at), _bytes(&at))
    for _ in range(head.properties):
        properties += (_text(&at), _property(&at))
    return (
        None if head.headers < 0 else tuple(headers),
        None if head.properties < 0 else tuple(properties),
        None if head.partition < 0 else head.partition,
        head.size,
    )


def packed_size(bytes packed):
    """The size that `pack` counted: the bytes of names and values, and 8 for each number."""
    return (<Head*>PyBytes_AS_STRING(packed)).size
