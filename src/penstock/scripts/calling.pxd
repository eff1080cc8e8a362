cimport cython
from penstock.scripts.context cimport Context, ScriptMessage, begin, given

ctypedef unsigned long long u64

cdef dict NO_TIMERS
cdef list NOTHING
cdef tuple UNFIT

@cython.freelist(8)
cdef class Outcome:
    cdef readonly bytes state
    cdef readonly dict timers
    cdef readonly list follow_ups
    cdef readonly list unset
    cdef readonly tuple answer
    cdef object _object

cdef class Held:
    cdef readonly bytes state
    cdef readonly dict timers
    cdef readonly bint changed
    cdef object _object

    cpdef int accept(self, Outcome outcome, bint keep_object) except -1

@cython.locals(made=Held)
cpdef Held held(object kept)

cdef class States:
    cdef str _app
    cdef object _decoder
    cdef readonly object fresh
    cdef readonly object encode
    cdef readonly object decode_json

    cpdef object decode(self, str key, bytes state)

cpdef Outcome call(str app, dict scripts, States states, Held held, object message, u64 now_us)
@cython.locals(timers=dict, was=bytes, context=Context, seen=ScriptMessage)
cpdef Outcome call_with(str app, dict scripts, States states, Held held, object message, object type, object key,
                        object timer, u64 now_us)
@cython.locals(before=dict, timers=dict, state=bytes, made=Outcome)
cdef Outcome _outcome(str app, States states, Held held, bytes was, Context context, ScriptMessage seen)
cdef list _unset(dict before, dict after)
