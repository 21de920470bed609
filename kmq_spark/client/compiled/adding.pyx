# cython: language_level=3, auto_pickle=False
"""The fast path of `Pending.add_any`: a plain record for a topic that already has waiting rows.

From the look at the lock until the row is complete, no Python code runs and the interpreter's lock
is kept. So no other thread can see half a row, and it is enough to see that the lock is free.
"""

from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_Check
from kmq_spark.client.compiled.brief_lock cimport BriefLock

from kmq_spark.client.handles.send_future import SendFuture
from kmq_storage.names import check_name

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        pass
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    unsigned int PyUnicode_READ_CHAR(object text, Py_ssize_t index)
    object PyType_GenericAlloc(PyTypeObject *kind, Py_ssize_t members)

cdef object _SendFuture = SendFuture


cdef class Adding:
    """As `PlainAdding`: plain records go to `pending` here, all others by `pending.add_any`."""

    cdef BriefLock lock
    cdef object pending, now_ns, in_python, when_enough
    cdef Py_ssize_t row_bytes

    def __init__(self, pending, Py_ssize_t row_bytes):
        self.pending, self.lock, self.now_ns = pending, pending._lock, pending._now_ns
        self.in_python, self.when_enough = pending.add_any, pending._when_enough
        self.row_bytes = row_bytes

    def add(self, topic, value, key, extras, on_delivery):
        """Add a record to a topic, as `PlainAdding.add` does."""
        if _is_no_name(topic):
            check_name("topic", topic)
        return self._add(topic, value, key, extras, on_delivery)

    def add_to_queue(self, topic, value, key, extras, on_delivery):
        """Add a record to a queue's own log, as `PlainAdding.add_to_queue` does."""
        return self._add(topic, value, key, extras, on_delivery)

    cdef object _add(self, object topic, object value, object key, object extras, object on_delivery):
        """Add a record and return its future, as `Pending.add_any` does."""
        cdef Py_ssize_t size = self.row_bytes
        cdef list values, keys, times
        if type(topic) is not str or on_delivery is not None:
            return self.in_python(topic, value, key, extras, on_delivery)
        for each in (value, key, extras):
            if each is not None:
                if not PyBytes_CheckExact(each):
                    return self.in_python(topic, value, key, extras, on_delivery)
                size += PyBytes_GET_SIZE(each)
        now = self.now_ns()
        rows = self._rows(topic)
        if rows is None or type(rows.times) is not list:
            return self.in_python(topic, value, key, extras, on_delivery)
        values, keys, times = rows.values, rows.keys, rows.times
        index = PyList_GET_SIZE(values)
        size += rows.size
        try:
            values.append(value)
            keys.append(key)
            times.append(now)
            if extras is not None:
                rows.extras[index] = extras
            rows.size = size
        except BaseException:  # out of memory: the rows before this one can still be committed
            rows.take_back(index)
            raise
        if size >= rows.alarm:
            self.when_enough(rows)
        return _future(rows, index)

    cdef object _rows(self, str topic):
        """The topic's waiting rows; None when it has none, or another thread holds the lock."""
        opened = self.pending._open
        cdef PyObject *found = <PyObject *> PyDict_GetItem(opened, topic)
        if found is NULL:
            return None
        rows = <object> found
        # The look-up ran Python code if some name is a subclass of str with its own `__eq__`.
        return None if self.lock.taken or self.pending._open is not opened else rows


cdef bint _is_no_name(object topic):
    """Whether a colon follows five letters: so a queue's own log begins, and no user's topic."""
    return (
        PyUnicode_Check(topic)
        and PyUnicode_GET_LENGTH(topic) > 5
        and PyUnicode_READ_CHAR(topic, 5) == 58
    )


cdef object _future(object rows, object index):
    """Build `SendFuture((rows, index))` in half the time of calling the class."""
    made = PyType_GenericAlloc(<PyTypeObject *> _SendFuture, 2)
    Py_INCREF(rows)
    PyTuple_SET_ITEM(made, 0, rows)
    Py_INCREF(index)
    PyTuple_SET_ITEM(made, 1, index)
    return made
