cimport cython
from penstock.scripts.calling cimport Held, Outcome, States, call_with, held
from penstock.spark.scripting.gathered cimport Gathered, Head
from penstock.store.files cimport Clock

ctypedef unsigned long long u64

cdef long long OBJECTS_BYTES_MAX

@cython.final
cdef class Caller:
    cdef object _app
    cdef dict _scripts
    cdef States _states
    cdef str _name
    cdef object _root
    cdef Clock _clock
    cdef long long _objects_bytes
    cdef object _manager
    cdef object _targets
    cdef dict _homes

    @cython.locals(n="Py_ssize_t", quick=Gathered, head=Head, found=Held, mine=Held)
    cpdef int call_all(self, list messages, dict contexts, object look_up, list results) except -1
    cpdef object call(self, object message, Held mine)
    @cython.locals(now_us=u64, outcome=Outcome)
    cdef object _call(self, object message, Held mine, object type, object key, object timer)
    @cython.locals(size_bytes="long long")
    cdef bint _may_keep(self, Outcome outcome) except -1
    cdef object _result(self, object message, Outcome outcome, u64 now_us)
    cdef object _failure(self, object message, object error)
    cdef int _check_answer(self, object message, u64 size_bytes) except -1
    cdef object _home(self, str path)
    cpdef object uuid(self, str path)
    cdef object _open(self)

cdef int _look_up(list messages, dict contexts, object look_up) except -1
