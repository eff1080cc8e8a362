cimport cython

ctypedef unsigned long long u64

@cython.freelist(8)
cdef class ScriptMessage:
    cdef readonly object _incoming
    cdef tuple _answer

@cython.freelist(8)
cdef class Context:
    cdef public object key
    cdef public object state
    cdef dict _timers
    cdef object _message
    cdef u64 _now_us
    cdef object _types
    cdef list _follow_ups
    cdef dict _set
    cdef u64 _settings
    cdef bint _ended

    cdef list _asked_for(self)

@cython.locals(context=Context)
cpdef Context begin(str key, object state, dict timers, object message, u64 now_us, object types)
@cython.locals(made=ScriptMessage)
cpdef ScriptMessage given(object message)
