# cmake -D FROM=FILE -D TO=HEADER -P tgtd_guard.cmake: the bytes of a file, as C++.
file(READ ${FROM} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(WRITE ${TO} "#pragma once\nnamespace lunkeeper {\ninline constexpr unsigned char kTgtdGuard[] = {${bytes}};\n}\n")
