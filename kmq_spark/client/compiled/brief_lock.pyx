# cython: language_level=3, auto_pickle=False
"""A lock for very short critical sections that many threads enter."""

from cpython.exc cimport PyErr_CheckSignals
from posix.time cimport nanosleep, timespec


cdef class BriefLock:
    """A lock that a thread takes only while it holds the interpreter's lock (the GIL).

    A thread that finds it taken sleeps for 50 microseconds and looks again. A `threading.Lock` goes
    to a waiting thread that doesn't have the GIL yet, and stays locked while that thread waits for
    the GIL. From then on every release wakes a thread, which costs more than the critical section.

    Python handles no signal between `__enter__` and the block, so the lock can't be left taken.
    """

    def __enter__(self):
        cdef timespec moment
        moment.tv_sec, moment.tv_nsec = 0, 50_000
        while self.taken:
            with nogil:
                nanosleep(&moment, NULL)
            PyErr_CheckSignals()  # so that Ctrl-C ends a thread that waits for itself
        self.taken = True

    def __exit__(self, *raised):
        self.taken = False
