cdef class BriefLock:
    cdef bint taken
