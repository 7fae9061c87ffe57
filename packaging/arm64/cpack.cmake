# Read by CPack before it makes a package: dpkg-shlibdeps learns from these whose package it is and what its libraries are of.
set(ENV{DEB_HOST_ARCH} arm64)
set(ENV{DPKG_ADMINDIR} ${CPACK_LUNKEEPER_DATABASE})
