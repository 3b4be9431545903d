# Languages, standards and flags. The only file that names compilers.
option(LAMINA_WARNINGS_AS_ERRORS "Treat warnings as errors" OFF)
set(LAMINA_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined")

if(NOT LAMINA_GPU MATCHES "^(none|cuda|hip)$")
  message(FATAL_ERROR "LAMINA_GPU is none, cuda or hip; given: ${LAMINA_GPU}")
endif()

# NOTE: without this a plain `cmake -B build` compiles the kernels at -O0.
get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT multi_config)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

if(LAMINA_GPU STREQUAL "cuda")
  include(LaminaCuda)
elseif(LAMINA_GPU STREQUAL "hip")
  include(LaminaHip)
endif()

# For our own sources only, never for those who link them.
add_library(lamina_flags INTERFACE)
target_compile_features(lamina_flags INTERFACE cxx_std_20)
target_compile_options(lamina_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wconversion;-Wno-sign-conversion>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${LAMINA_WARNINGS_AS_ERRORS}>>:-Werror>
  # NOTE: the numerics contract fixes where products are fused; the compiler
  # must not fuse others.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(LAMINA_GPU STREQUAL "cuda")
  target_compile_definitions(lamina_flags INTERFACE LAMINA_GPU_CUDA=1)
  target_compile_options(lamina_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:${LAMINA_CUDA_FLAGS}>")
elseif(LAMINA_GPU STREQUAL "hip")
  target_compile_definitions(lamina_flags INTERFACE LAMINA_GPU_HIP=1)
  target_compile_options(lamina_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:HIP>:${LAMINA_HIP_FLAGS}>")
endif()
if(LAMINA_SANITIZE)
  target_compile_options(lamina_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LAMINA_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:$<TARGET_PROPERTY:LAMINA_TEST_CODE>>>:-fno-sanitize=undefined>)
  target_link_options(lamina_flags INTERFACE -fsanitize=${LAMINA_SANITIZE})
endif()

# SIMD of the CPU kernels: AVX2 and AVX-512 are picked at run time, older CPUs
# run the portable loop. Masks out what else a Highway version may add.
target_link_libraries(lamina_flags INTERFACE hwy::hwy)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  target_compile_definitions(lamina_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:HWY_DISABLED_TARGETS=(~(HWY_AVX2|HWY_AVX3|HWY_SCALAR))>"
    $<$<COMPILE_LANGUAGE:CXX>:HWY_BROKEN_EMU128=1>)
endif()
