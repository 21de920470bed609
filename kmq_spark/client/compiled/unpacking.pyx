# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Headers and properties of records that were read, converted from Arrow when they are used."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from kmq_spark.client.compiled.packing cimport (
    BOOL, BYTES, FLOAT, INT, TEXT, PyUnicode_AsUTF8AndSize, begins_unlike,
)

from kmq_storage.format.records import HEADERS_TYPE, PROPERTIES_TYPE

cdef enum:
    #: The size of the cache of decoded names.
    NAMES = 16


cdef class _Stored:
    """The buffers of an Arrow column. `valid` is NULL when the column has no nulls."""

    cdef:
        object held
        const uint8_t* valid
        const int32_t* ends
        const char* data
        Py_ssize_t first, count

    def __cinit__(self, column):
        self.held, self.first, self.count = column, column.offset, len(column)
        addresses = [0 if each is None else each.address for each in column.buffers()]
        self.valid = <const uint8_t*><size_t>addresses[0] if column.null_count else NULL
        self.ends = <const int32_t*><size_t>addresses[1]
        self.data = <const char*><size_t>addresses[len(addresses) - 1]

    cdef inline bint is_there(self, Py_ssize_t row) noexcept:
        row += self.first
        return self.valid == NULL or self.valid[row >> 3] >> (row & 7) & 1

    cdef inline int32_t piece(self, Py_ssize_t row, const char** data) noexcept:
        """Return the length of a text or bytes value, and set `data` to its first byte."""
        row += self.first
        data[0] = self.data + self.ends[row]
        return self.ends[row + 1] - self.ends[row]

    cdef inline object value(self, Py_ssize_t row, int kind):
        cdef const char* data
        cdef int32_t length
        if kind == TEXT or kind == BYTES:
            length = self.piece(row, &data)
            if kind == TEXT:
                return PyUnicode_DecodeUTF8(data, length, NULL)
            return PyBytes_FromStringAndSize(data, length)
        row += self.first
        if kind == INT:
            return (<const int64_t*>self.data)[row]
        if kind == FLOAT:
            return (<const double*>self.data)[row]
        return bool(self.data[row >> 3] >> (row & 7) & 1)


cdef class _Names:
    """A column of names; few different ones repeat, so decoded names are kept in a cache."""

    cdef:
        _Stored column
        list known

    def __cinit__(self, column):
        self.column, self.known = _Stored(column), [""] * NAMES

    cdef inline object at(self, Py_ssize_t pair):
        cdef:
            const char* data
            int32_t length = self.column.piece(pair, &data)
            int slot = (length + (data[length - 1] if length else 0)) & (NAMES - 1)
            Py_ssize_t known
            object name = self.known[slot]
            const char* text = PyUnicode_AsUTF8AndSize(name, &known)
        if known != length or memcmp(text, data, length):
            name = PyUnicode_DecodeUTF8(data, length, NULL)
            self.known[slot] = name
        return name


@cython.no_gc  # so the garbage collector does not track tuples that hold it
cdef class StoredExtras:
    """Headers and properties of many rows; the compiled `records.stored_extras.StoredExtras`."""

    cdef:
        _Stored rows_of_headers, rows_of_properties, values
        _Names headers_names, properties_names
        list members

    def __cinit__(self, headers, properties):
        if headers is not None and headers.null_count < len(headers):
            _check(headers, HEADERS_TYPE)
            names, values = headers.values.flatten()
            self.rows_of_headers, self.headers_names = _Stored(headers), _Names(names)
            self.values = _Stored(values)
        if properties is not None and properties.null_count < len(properties):
            _check(properties, PROPERTIES_TYPE)
            self.rows_of_properties = _Stored(properties)
            self.properties_names = _Names(properties.keys)
            self.members = [
                None if each.null_count == len(each) else _Stored(each)
                for each in properties.items.flatten()
            ]

    def headers(self, Py_ssize_t row):
        """A row's headers as pairs of name and value."""
        cdef Py_ssize_t pair
        if not _has(self.rows_of_headers, row):
            return ()
        return tuple([
            (self.headers_names.at(pair), self._value(pair))
            for pair in range(_begin(self.rows_of_headers, row), _end(self.rows_of_headers, row))
        ])

    cdef inline object _value(self, Py_ssize_t pair):
        return self.values.value(pair, BYTES) if self.values.is_there(pair) else None

    def header_names(self):
        """The names of all headers of all rows."""
        cdef Py_ssize_t pair, rows
        cdef set found = set()
        if self.rows_of_headers is not None:
            rows = self.rows_of_headers.count
            for pair in range(_begin(self.rows_of_headers, 0), _end(self.rows_of_headers, rows - 1)):
                found.add(self.headers_names.at(pair))
        return found

    def add_headers(self, dict found, Py_ssize_t row, left_out, decode, bytes unlike):
        """Put a row's headers into `found`, without those named in `left_out` or without a value.

        A value that begins with none of the letters of `unlike` is text; `decode` reads the others.
        """
        cdef:
            Py_ssize_t pair
            int32_t length
            const char* data
        if not _has(self.rows_of_headers, row):
            return
        for pair in range(_begin(self.rows_of_headers, row), _end(self.rows_of_headers, row)):
            if not self.values.is_there(pair):
                continue
            name = self.headers_names.at(pair)
            if name in left_out:
                continue
            length = self.values.piece(pair, &data)
            if begins_unlike(data, length, unlike):
                found[name] = PyUnicode_DecodeUTF8(data, length, "replace")
            else:
                found[name] = decode(PyBytes_FromStringAndSize(data, length))

    def properties(self, Py_ssize_t row):
        """A row's properties by name."""
        cdef Py_ssize_t pair
        cdef dict found = {}
        if not _has(self.rows_of_properties, row):
            return found
        for pair in range(
            _begin(self.rows_of_properties, row), _end(self.rows_of_properties, row)
        ):
            found[self.properties_names.at(pair)] = self._property(pair)
        return found

    cdef object _property(self, Py_ssize_t pair):
        cdef int kind
        cdef _Stored member
        for kind in range(BOOL + 1):
            member = self.members[kind]
            if member is not None and member.is_there(pair):
                return member.value(pair, kind)
        return None


cdef _check(column, kind):
    """TypeError for another type of column, whose buffers would be misread."""
    if column.type != kind:
        raise TypeError(f"a column of {column.type}, not of {kind}")


cdef inline bint _has(_Stored rows, Py_ssize_t row) except -1:
    """Whether a row has headers or properties; IndexError for a row outside the column."""
    if rows is None:
        return False
    if not 0 <= row < rows.count:
        raise IndexError(f"row {row} of {rows.count}")
    return rows.is_there(row)


cdef inline Py_ssize_t _begin(_Stored rows, Py_ssize_t row) noexcept:
    return rows.ends[rows.first + row]


cdef inline Py_ssize_t _end(_Stored rows, Py_ssize_t row) noexcept:
    return rows.ends[rows.first + row + 1]
