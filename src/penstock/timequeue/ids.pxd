cpdef tuple taken_apart(object message_id, str prefix, str name)
