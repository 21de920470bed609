# cython: language_level=3, auto_pickle=False
"""A lock for what many threads do for moments."""

from cpython.exc cimport PyErr_CheckSignals
from posix.time cimport nanosleep, timespec


cdef class BriefLock:
    """A lock whose holder had the interpreter when it took it: who finds it taken, looks again soon.

    Who waits in line for a `threading.Lock` gets it without the interpreter, and keeps it from all
    while it waits for that, too: from then on every release wakes a thread, which costs more than
    what is done in here. As no signal comes between `__enter__` and the block, nothing is left taken.
    """

    def __enter__(self):
        cdef timespec moment
        moment.tv_sec, moment.tv_nsec = 0, 50_000
        while self.taken:
            with nogil:
                nanosleep(&moment, NULL)
            PyErr_CheckSignals()  # who waits for what its own thread has is interrupted at least
        self.taken = True

    def __exit__(self, *raised):
        self.taken = False
