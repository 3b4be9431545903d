# lamina_test(NAME norm.rms_norm SRCS … DEPS … [LABELS …])
#
# A GoogleTest program build/<preset>/bin/<name with _>_test whose cases are
# listed by CTest as <name>.<suite>.<case>.
include(GoogleTest)
function(lamina_test)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  string(REPLACE "." "_" target ${ARG_NAME})
  set(target ${target}_test)
  add_executable(${target} ${ARG_SRCS})
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    RUNTIME_OUTPUT_DIRECTORY ${lamina_BINARY_DIR}/bin)
  target_link_libraries(${target} PRIVATE
    ${ARG_DEPS} lamina_testing GTest::gtest_main GTest::gmock lamina_flags)
  target_include_directories(${target} PRIVATE ${lamina_SOURCE_DIR})
  # Half the compile time of -O3; what is tested is optimised in its library.
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  gtest_discover_tests(${target}
    TEST_PREFIX "${ARG_NAME}."
    DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 600)
endfunction()
