# What of `message.py` is C's when it is compiled.

cdef class SendResult:
    cdef public object future
    cdef object _name, _host

cdef class BytesMessage:
    cdef public object body, header_values, property_values, sent
