# Languages, standards and flags. The only file that names compilers.
option(LAMINA_WARNINGS_AS_ERRORS "Treat warnings as errors" OFF)
set(LAMINA_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined")

add_library(lamina_flags INTERFACE)
target_compile_features(lamina_flags INTERFACE cxx_std_20)
target_compile_options(lamina_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wconversion;-Wno-sign-conversion;-Wno-missing-field-initializers>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${LAMINA_WARNINGS_AS_ERRORS}>>:-Werror>
  # NOTE: the numerics contract fixes where products are fused; the compiler
  # must not fuse others.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(LAMINA_SANITIZE)
  target_compile_options(lamina_flags INTERFACE
    -fsanitize=${LAMINA_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  target_link_options(lamina_flags INTERFACE -fsanitize=${LAMINA_SANITIZE})
endif()

if(LAMINA_GPU STREQUAL "none")
elseif(LAMINA_GPU STREQUAL "cuda" OR LAMINA_GPU STREQUAL "hip")
  message(FATAL_ERROR
    "LAMINA_GPU=${LAMINA_GPU}: the ${LAMINA_GPU} backend is not in this version")
else()
  message(FATAL_ERROR "LAMINA_GPU is none, cuda or hip; given: ${LAMINA_GPU}")
endif()
