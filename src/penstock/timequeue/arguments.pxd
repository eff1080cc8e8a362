cpdef object check_most(object most)
cpdef object check_durability(object durability)
cpdef int check_several(object name, object bodies, object hint=*) except -1
