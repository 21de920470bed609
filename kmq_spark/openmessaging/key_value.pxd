# What of `key_value.py` is C's when it is compiled.

cdef class KeyValue:
    cdef public object values  # `dict` would refuse its subclasses
    cpdef _get(self, key, kind, default)

cpdef set_checked(values, key, value)
