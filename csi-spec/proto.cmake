# lk_proto(NAME SRCS a/b.proto … [ROOT dir] [DEPS targets …] [GRPC]): a static library of their C++.
#
#   lk_proto(lk_admin_proto SRCS plugin/admin.proto GRPC)
#   lk_library(lk_admin SRCS admin.cc DEPS lk_admin_proto)     #include "plugin/admin.grpc.pb.h"
#
# Sources are named relative to ROOT (the top of the tree unless given); by the same path they import each
# other and are included. GRPC makes the service stubs too. DEPS are the lk_proto targets of what they import.
#
# Generated code lands in the build tree and is compiled without our warnings, and cheaply: unoptimised where users do not get
# it, and without ASan and UBSan (its headers, compiled into our own files, still have them). CPU seconds for csi_v1 with
# g++ 12: -O1 23, -O0 14; with TSan 30, 18. With clang 16: ASan and the fuzzers' coverage 23, neither 8.
find_program(LK_PROTOC protoc REQUIRED)
find_program(LK_GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)

function(lk_proto name)
  cmake_parse_arguments(ARG "GRPC" "ROOT" "SRCS;DEPS" ${ARGN})
  if(NOT ARG_ROOT)
    set(ARG_ROOT ${CMAKE_SOURCE_DIR})
  endif()
  set(out ${CMAKE_BINARY_DIR}/proto)
  set(sources)
  set(endings .pb.cc .pb.h)
  set(arguments --cpp_out=${out})
  if(ARG_GRPC)
    list(APPEND endings .grpc.pb.cc .grpc.pb.h)
    list(APPEND arguments --grpc_out=${out} --plugin=protoc-gen-grpc=${LK_GRPC_CPP_PLUGIN})
  endif()
  file(MAKE_DIRECTORY ${out})
  foreach(proto IN LISTS ARG_SRCS)
    string(REGEX REPLACE "\\.proto$" "" stem ${proto})
    list(TRANSFORM endings PREPEND ${out}/${stem} OUTPUT_VARIABLE made)
    add_custom_command(OUTPUT ${made} COMMAND ${LK_PROTOC} -I ${ARG_ROOT} ${arguments} ${proto}
                       DEPENDS ${ARG_ROOT}/${proto} COMMENT "protoc ${proto}" VERBATIM)
    list(APPEND sources ${made})
  endforeach()
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} SYSTEM PUBLIC ${out})
  target_link_libraries(${name} PUBLIC protobuf::libprotobuf ${ARG_DEPS})
  if(ARG_GRPC)
    target_link_libraries(${name} PUBLIC PkgConfig::GRPC)
  endif()
  target_compile_options(${name} PRIVATE -w ${LK_QUICKLY_COMPILED} $<$<CONFIG:Release>:-O1>)
  if(LUNKEEPER_SANITIZE MATCHES "thread")
    target_link_libraries(${name} PUBLIC lk_sanitize)
  endif()
endfunction()
