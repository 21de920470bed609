# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Build one record batch from the rows of a commit, by Arrow's C data interface.

See https://arrow.apache.org/docs/format/CDataInterface.html. All arrays of a batch and their
buffers are in one block of memory, the arena. It is freed when the last array is released.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from kmq_spark.client.compiled.packing cimport BOOL, BYTES, TEXT, Head, take_length

import numpy as np
import pyarrow as pa

from kmq_storage.format.records import HEADERS, KEY, PROPERTIES, stored_schema

cdef extern from "Python.h":
    void* PyByteArray_AS_STRING(object array)
    bint PyList_CheckExact(object value)

cdef extern from *:
    int fetch_and_subtract "__atomic_fetch_sub"(int* number, int less, int order) nogil
    int __ATOMIC_SEQ_CST

cdef enum:
    #: More bytes than the array structs of a batch and the padding of their buffers can take.
    ARRAYS = 8192

cdef struct _Array:
    # `ArrowArray` of the C data interface; it keeps its arena in `private_data`.
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void** buffers
    _Array** children
    _Array* dictionary
    void (*release)(_Array*) noexcept nogil
    void* arena

cdef struct _Arena:
    int arrays  # how many arrays are not released yet
    char* at


cdef void _release(_Array* array) noexcept nogil:
    """Release an array and its children; the last release of a batch frees the arena."""
    cdef int64_t n
    cdef _Arena* arena = <_Arena*>array.arena
    for n in range(array.n_children):
        if array.children[n].release != NULL:
            array.children[n].release(array.children[n])
    array.release = NULL
    if fetch_and_subtract(&arena.arrays, 1, __ATOMIC_SEQ_CST) == 1:
        free(arena)


cdef inline void* _take(_Arena* arena, size_t size) noexcept:
    """Take memory from the arena, aligned to 64 bytes as Arrow recommends."""
    cdef void* taken = arena.at
    arena.at += (size + 63) & ~<size_t>63
    return taken


cdef _Array* _array(_Arena* arena, int64_t length, int buffers, int children) noexcept:
    cdef _Array* found = <_Array*>_take(
        arena, sizeof(_Array) + (buffers + children) * sizeof(void*)
    )
    memset(found, 0, sizeof(_Array) + (buffers + children) * sizeof(void*))
    found.length, found.n_buffers, found.n_children = length, buffers, children
    found.buffers = <const void**>(found + 1)
    found.children = <_Array**>(found.buffers + buffers)
    found.release, found.arena = _release, arena
    arena.arrays += 1
    return found


cdef struct _Pieces:
    # A text, binary or list column that is built row by row; a list column has no data of its own.
    _Array* array
    uint8_t* valid
    int32_t* ends
    char* data
    int32_t row
    int32_t filled


cdef _Pieces _pieces(_Arena* arena, int64_t rows, int64_t size, int buffers, int children) noexcept:
    cdef _Pieces found
    found.array = _array(arena, rows, buffers, children)
    found.valid = <uint8_t*>_take(arena, (rows + 7) >> 3)
    memset(found.valid, 0, (rows + 7) >> 3)
    found.ends = <int32_t*>_take(arena, 4 * rows + 4)
    found.data = <char*>_take(arena, size)
    found.ends[0] = found.row = found.filled = 0
    found.array.buffers[1] = found.ends
    if buffers == 3:
        found.array.buffers[2] = found.data
    return found


cdef inline void _add(_Pieces* to, const char* data, int32_t length) noexcept:
    """Append a row; a length of -1 is a null, and for a list the length is the number of items."""
    if length >= 0:
        if data != NULL:
            memcpy(to.data + to.filled, data, length)
        to.filled += length
        to.valid[to.row >> 3] |= 1 << (to.row & 7)
    else:
        to.array.null_count += 1
        to.array.buffers[0] = to.valid
    to.row += 1
    to.ends[to.row] = to.filled


cdef inline void _move(_Pieces* to, const char** at) noexcept:
    cdef int32_t length = take_length(at)
    _add(to, at[0], length)
    at[0] += max(length, 0)


cdef struct _Numbers:
    # A column of numbers or booleans, which are null until they are set.
    _Array* array
    uint8_t* valid
    char* data


cdef _Numbers _numbers(_Arena* arena, int64_t rows) noexcept:
    cdef _Numbers found
    found.array = _array(arena, rows, 2, 0)
    found.valid = <uint8_t*>_take(arena, (rows + 7) >> 3)
    found.data = <char*>_take(arena, 8 * rows)
    memset(found.valid, 0, (rows + 7) >> 3)
    memset(found.data, 0, 8 * rows)
    found.array.null_count = rows
    found.array.buffers[0], found.array.buffers[1] = found.valid, found.data
    return found


cdef inline void _set(_Numbers* numbers, int32_t row, uint8_t kind, const char* number) noexcept:
    if kind == BOOL:
        numbers.data[row >> 3] |= number[0] << (row & 7)
    else:
        memcpy(numbers.data + 8 * row, number, 8)
    numbers.valid[row >> 3] |= 1 << (row & 7)
    numbers.array.null_count -= 1


cdef struct _Counts:
    int64_t headers, properties, size
    bint have_headers, have_properties


cdef _Array* _headers(_Arena* arena, list rows, _Counts* counts) noexcept:
    cdef:
        int32_t n
        const char* at
        bytes packed
        _Pieces bounds = _pieces(arena, len(rows), 0, 2, 1)
        _Array* entries = _array(arena, counts.headers, 1, 2)
        _Pieces names = _pieces(arena, counts.headers, counts.size, 3, 0)
        _Pieces values = _pieces(arena, counts.headers, counts.size, 3, 0)
    bounds.array.children[0] = entries
    entries.children[0], entries.children[1] = names.array, values.array
    for packed in rows:
        at = PyBytes_AS_STRING(packed) + sizeof(Head)
        _add(&bounds, NULL, (<Head*>PyBytes_AS_STRING(packed)).headers)
        for n in range((<Head*>PyBytes_AS_STRING(packed)).headers):
            _move(&names, &at)
            _move(&values, &at)
    return bounds.array


cdef const char* _behind_headers(bytes packed) noexcept:
    cdef int32_t n
    cdef const char* at = PyBytes_AS_STRING(packed) + sizeof(Head)
    for n in range(2 * (<Head*>PyBytes_AS_STRING(packed)).headers):
        at += max(take_length(&at), 0)
    return at


cdef _Array* _properties(_Arena* arena, list rows, _Counts* counts) noexcept:
    cdef:
        int32_t n
        uint8_t kind
        const char* at
        bytes packed
        int64_t count = counts.properties
        _Pieces bounds = _pieces(arena, len(rows), 0, 2, 1)
        _Array* entries = _array(arena, count, 1, 2)
        _Pieces names = _pieces(arena, count, counts.size, 3, 0)
        _Array* values = _array(arena, count, 1, 5)
        _Pieces[BOOL + 1] pieces
        _Numbers[BOOL + 1] numbers
    bounds.array.children[0] = entries
    entries.children[0], entries.children[1] = names.array, values
    for kind in range(BOOL + 1):
        if kind == TEXT or kind == BYTES:
            pieces[kind] = _pieces(arena, count, counts.size, 3, 0)
            values.children[kind] = pieces[kind].array
        else:
            numbers[kind] = _numbers(arena, count)
            values.children[kind] = numbers[kind].array
    for packed in rows:
        at = _behind_headers(packed)
        _add(&bounds, NULL, (<Head*>PyBytes_AS_STRING(packed)).properties)
        for n in range((<Head*>PyBytes_AS_STRING(packed)).properties):
            _move(&names, &at)
            kind = (<uint8_t*>at)[0]
            at += 1
            if kind == TEXT:
                _move(&pieces[TEXT], &at)
            else:
                _add(&pieces[TEXT], NULL, -1)
            if kind == BYTES:
                _move(&pieces[BYTES], &at)
            else:
                _add(&pieces[BYTES], NULL, -1)
            if kind != TEXT and kind != BYTES:
                _set(&numbers[kind], names.row - 1, kind, at)
                at += 8
    return bounds.array


cdef bint _count_bytes(list column, int64_t* size, bint* any_there) noexcept:
    """Add up the bytes of a column; False when it has values other than bytes and None."""
    for value in column:
        if value is not None:
            if not PyBytes_CheckExact(value):
                return False
            size[0] += PyBytes_GET_SIZE(value)
            any_there[0] = True
    return True


cdef _Counts _counts(list rows, int64_t* sizes, int32_t* partitions) noexcept:
    cdef:
        _Counts found
        Head* head
        bytes packed
        Py_ssize_t row = 0
    memset(&found, 0, sizeof(_Counts))
    for packed in rows:
        head = <Head*>PyBytes_AS_STRING(packed)
        found.have_headers |= head.headers >= 0
        found.have_properties |= head.properties >= 0
        found.headers += max(head.headers, 0)
        found.properties += max(head.properties, 0)
        found.size += PyBytes_GET_SIZE(packed)
        sizes[row], partitions[row] = head.size, head.partition
        row += 1
    return found


cdef _Array* _column(_Arena* arena, list rows, int64_t size, int64_t* sizes) noexcept:
    cdef _Pieces found = _pieces(arena, len(rows), size, 3, 0)
    cdef int32_t row = 0
    for value in rows:
        if value is None:
            _add(&found, NULL, -1)
        else:
            _add(&found, PyBytes_AS_STRING(value), <int32_t>PyBytes_GET_SIZE(value))
            sizes[row] += PyBytes_GET_SIZE(value)
        row += 1
    return found.array


def batch(values, keys, times, list packed):
    """Build the stored record batch; returns it, the bytes of each row, and the chosen partitions.

    `times` are int64, UTC microseconds. `packed` has the headers and properties of each row (see
    `packing`), or is empty when no row has any. The chosen partitions are a number (all rows chose
    it), None (no row chose one), or an array with -1 for rows that chose none.

    Returns None for values or keys that are neither bytes nor None, for more bytes than a column
    can hold, and for lists of different lengths, which a send that was interrupted twice can leave.
    The Python code then builds the batch.
    """
    if not (PyList_CheckExact(values) and PyList_CheckExact(keys)):
        return None
    cdef:
        list all_values = values, all_keys = keys
        Py_ssize_t rows = len(all_values)
        int64_t value_bytes = 0, key_bytes = 0
        bint have_values = False, have_keys = False
        const void* moments
        bytearray sizes = bytearray(8 * rows), partitions = bytearray(4 * rows)
        int64_t* size_of_row = <int64_t*>PyByteArray_AS_STRING(sizes)
        int32_t* partition_of_row = <int32_t*>PyByteArray_AS_STRING(partitions)
        _Counts counts
        _Arena* arena
        _Array* root
    if len(all_keys) != rows or (packed and len(packed) != rows):
        return None
    if not _are_times(times, rows, &moments):
        return None
    if not _count_bytes(all_values, &value_bytes, &have_values):
        return None
    if not _count_bytes(all_keys, &key_bytes, &have_keys):
        return None
    memset(partition_of_row, 0xFF, 4 * rows)
    counts = _counts(packed, size_of_row, partition_of_row)
    if max(value_bytes, key_bytes, counts.size) > INT32_MAX:
        return None
    arena = _arena(rows, value_bytes + key_bytes, &counts)
    if arena == NULL:
        raise MemoryError()
    root = _array(arena, rows, 1, 2 + have_keys + counts.have_headers + counts.have_properties)
    root.children[0] = _times(arena, moments, rows)
    if have_keys:
        root.children[1] = _column(arena, all_keys, key_bytes, size_of_row)
    root.children[1 + have_keys] = _column(arena, all_values, value_bytes, size_of_row)
    if counts.have_headers:
        root.children[2 + have_keys] = _headers(arena, packed, &counts)
    if counts.have_properties:
        root.children[root.n_children - 1] = _properties(arena, packed, &counts)
    schema = stored_schema(
        KEY * have_keys | HEADERS * counts.have_headers | PROPERTIES * counts.have_properties
    )
    try:
        found = pa.RecordBatch._import_from_c(<size_t>root, schema)
    except BaseException:
        if root.release != NULL:
            root.release(root)
        raise
    return found, np.frombuffer(sizes, np.int64), _chosen(partition_of_row, rows, partitions)


cdef object _chosen(int32_t* of_row, Py_ssize_t rows, bytearray partitions):
    cdef Py_ssize_t row
    for row in range(1, rows):
        if of_row[row] != of_row[0]:
            return np.frombuffer(partitions, np.int32)
    return None if not rows or of_row[0] < 0 else of_row[0]


cdef _Arena* _arena(int64_t rows, int64_t size, _Counts* counts) noexcept:
    """Allocate the arena, large enough for all arrays and the most that their buffers can hold."""
    cdef _Arena* found = <_Arena*>malloc(
        ARRAYS + size + 32 * rows + 16 * counts.headers + 64 * counts.properties + 5 * counts.size
    )
    if found != NULL:
        found.arrays, found.at = 0, <char*>found + (64 - <size_t>found % 64) + 64
    return found


cdef bint _are_times(times, Py_ssize_t rows, const void** found) except -1:
    """Whether there is a time for each row; `found` points to them while no Python code runs."""
    cdef Py_buffer view
    PyObject_GetBuffer(times, &view, PyBUF_SIMPLE)
    cdef Py_ssize_t size = view.len
    found[0] = view.buf
    PyBuffer_Release(&view)
    return size == 8 * rows


cdef _Array* _times(_Arena* arena, const void* moments, Py_ssize_t rows) noexcept:
    cdef _Array* found = _array(arena, rows, 2, 0)
    cdef void* taken = _take(arena, 8 * rows)
    memcpy(taken, moments, 8 * rows)
    found.buffers[1] = taken
    return found
