# Compiled for its speed; nothing in it needs a C type.
