# What of `key_value.py` is C's when it is compiled.

cdef class KeyValue:
    cdef public dict values
    cpdef _get(self, key, kind, default)

cpdef set_checked(dict values, key, value)
