# Headers that most sources include, compiled once: without them parsing is two
# thirds of what a source of host code costs.
#
# A source that misses one of these includes compiles all the same; builds
# without them say so: those of scripts/compile_hip, those with ccache, and
# whoever's that adds Lamina to a project.
set(precompile ${PROJECT_IS_TOP_LEVEL})
# NOTE: ccache takes what uses them for something that it has never seen, unless
# told otherwise; clang wants the same macros wherever they are used; where HIP
# is a language too, CMake 3.25 makes them for clang.
if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache" OR LAMINA_GPU STREQUAL "hip" OR
    NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(precompile OFF)
endif()
option(LAMINA_PRECOMPILE_HEADERS "Precompile common headers (GCC)" ${precompile})

set(LAMINA_COMMON_HEADERS
  <algorithm> <array> <bit> <cmath> <cstdint> <cstring> <functional> <limits>
  <map> <memory> <optional> <string> <string_view> <utility> <vector>
  absl/functional/function_ref.h absl/status/status.h absl/status/statusor.h
  absl/strings/str_cat.h absl/strings/str_format.h absl/strings/str_join.h
  absl/types/span.h)
list(TRANSFORM LAMINA_COMMON_HEADERS REPLACE "^(absl.*)" "<\\1>")

# lamina_precompiled_headers(<target> <headers>…): an object library that is
# compiled as the targets are that use them.
function(lamina_precompiled_headers target)
  if(NOT LAMINA_PRECOMPILE_HEADERS)
    return()
  endif()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${target}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Has to compile something.\n")
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${source})
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_precompile_headers(${target} PRIVATE ${ARGN})
  target_link_libraries(${target} PRIVATE lamina_flags)
endfunction()

# lamina_use_precompiled_headers(<target> <of lamina_precompiled_headers>)
function(lamina_use_precompiled_headers target headers)
  if(LAMINA_PRECOMPILE_HEADERS)
    set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
    target_precompile_headers(${target} REUSE_FROM ${headers})
  endif()
endfunction()

# Of every library: position-independent code.
lamina_precompiled_headers(lamina_library_headers ${LAMINA_COMMON_HEADERS})
if(TARGET lamina_library_headers)
  set_target_properties(lamina_library_headers PROPERTIES
    POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(lamina_library_headers PRIVATE absl::status
    absl::statusor absl::strings absl::str_format absl::function_ref absl::span)
endif()
