# lamina_test(NAME norm.rms_norm SRCS … DEPS … [LABELS …] [GPU norm]
#   [GPU_FILTER <pattern>])
#
# A GoogleTest program build/<preset>/bin/<name with _>_test whose cases are
# listed by CTest as <name>.<suite>.<case>; with sanitizers, which take their
# time to start, as the one test <name>.
#
# GPU names the library whose operators it tests (the last one in rank order):
# the same cases then also run on the GPU kernels (tests/support/test_device.h).
# Without a GPU in the build a second program with the same objects runs them on
# the host, at wave size 32 and 64: <name>.simt32.<suite>.<case>, label simt. In
# a GPU build the one program does: <name>.gpu.…, label gpu, skipped without a
# GPU. GPU_FILTER is a GoogleTest filter for these.
include(GoogleTest)
function(lamina_test)
  cmake_parse_arguments(ARG "" "NAME;GPU;GPU_FILTER" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  string(REPLACE "." "_" base ${ARG_NAME})
  set(target ${base}_test)
  if(ARG_GPU AND LAMINA_GPU STREQUAL "none")
    add_library(${target}_objects OBJECT ${ARG_SRCS})
    lamina_test_target(${target}_objects ${ARG_DEPS})
    add_executable(${target} $<TARGET_OBJECTS:${target}_objects>)
  else()
    add_executable(${target} ${ARG_SRCS})
  endif()
  lamina_test_target(${target} ${ARG_DEPS})
  lamina_discover_tests(${target} "${ARG_NAME}." "${ARG_LABELS}" "" "")
  if(NOT ARG_GPU)
    return()
  endif()

  if(NOT LAMINA_GPU STREQUAL "none")
    # The program links the GPU functions that it calls.
    target_compile_definitions(${target} PRIVATE LAMINA_TEST_GPU=1)
    target_link_libraries(${target} PRIVATE lamina_pinned_new)
    lamina_discover_tests(${target} "${ARG_NAME}.gpu." gpu
      LAMINA_TEST_DEVICE=${LAMINA_GPU} "${ARG_GPU_FILTER}")
    return()
  endif()
  set(simt ${base}_simt_test)
  add_executable(${simt} $<TARGET_OBJECTS:${target}_objects>)
  get_property(libraries GLOBAL PROPERTY LAMINA_CLOSURE_${ARG_GPU})
  foreach(library IN LISTS libraries ARG_GPU)
    if(TARGET lamina_${library}_simt)
      # NOTE: as objects, so that they take the place of the library's own.
      target_sources(${simt} PRIVATE
        $<TARGET_OBJECTS:lamina_${library}_simt>)
    endif()
  endforeach()
  lamina_test_target(${simt} ${ARG_DEPS})
  foreach(wave 32 64)
    lamina_discover_tests(${simt} "${ARG_NAME}.simt${wave}." simt
      LAMINA_TEST_DEVICE=simt${wave} "${ARG_GPU_FILTER}")
  endforeach()
endfunction()

function(lamina_test_target target)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    RUNTIME_OUTPUT_DIRECTORY ${lamina_BINARY_DIR}/bin)
  target_link_libraries(${target} PRIVATE
    ${ARGN} lamina_testing GTest::gtest_main GTest::gmock lamina_flags)
  target_include_directories(${target} PRIVATE ${lamina_SOURCE_DIR})
  lamina_use_precompiled_headers(${target} lamina_test_headers)
  lamina_test_options(${target})
endfunction()

# How tests are compiled: what is tested is optimised in its library, and
# watched there for undefined behaviour. Halves what a test costs to compile.
function(lamina_test_options target)
  target_compile_options(${target} PRIVATE
    $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
  set_target_properties(${target} PROPERTIES LAMINA_TEST_CODE ON)
endfunction()

function(lamina_discover_tests target prefix labels environment filter)
  # A process with AddressSanitizer takes a tenth of a second to start: one runs
  # all cases.
  if(LAMINA_SANITIZE)
    string(REGEX REPLACE "\\.$" "" name ${prefix})
    if(filter)
      set(filter --gtest_filter=${filter})
    endif()
    add_test(NAME ${name} COMMAND ${target} --gtest_brief=1 ${filter})
    set_tests_properties(${name} PROPERTIES
      LABELS "${labels}" TIMEOUT 1200 SKIP_RETURN_CODE 77
      ENVIRONMENT "${environment}")
    return()
  endif()
  gtest_discover_tests(${target}
    TEST_PREFIX "${prefix}"
    TEST_LIST ${target}_${prefix}_tests
    TEST_FILTER "${filter}"
    NO_PRETTY_VALUES
    DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${labels}" TIMEOUT 600 SKIP_RETURN_CODE 77
      ENVIRONMENT "${environment}")
endfunction()
