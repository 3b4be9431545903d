# CUDA as a language, for LAMINA_GPU=cuda: sets LAMINA_CUDA_FLAGS, the options
# of our own .cu files, and LAMINA_CUDA_ARCHITECTURES.
set(LAMINA_CUDA_ALL_ARCHITECTURES 80 86 89 90a 100a 120a CACHE STRING
  "What the target cuda_architectures compiles for")

# NOTE: asked before the language is enabled, which fills both in.
if(DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(LAMINA_CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
elseif(DEFINED ENV{CUDAARCHS})
  set(LAMINA_CUDA_ARCHITECTURES "$ENV{CUDAARCHS}")
else()
  set(LAMINA_CUDA_ARCHITECTURES ${LAMINA_CUDA_ALL_ARCHITECTURES})
endif()

include(CheckLanguage)
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(LAMINA_NVCC nvcc
    HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(LAMINA_NVCC)
  if(LAMINA_NVCC)
    set(ENV{CUDACXX} ${LAMINA_NVCC})
  endif()
endif()
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "LAMINA_GPU=cuda needs nvcc, CUDA 12.8 or later; \
it is not in PATH, CUDACXX or /usr/local/cuda")
endif()
# NOTE: the runtime is a public dependency of core (CUDA::cudart_static), so
# that a program in C++ alone can link the installed libraries; the default
# adds it only where CUDA is the link language.
set(CMAKE_CUDA_RUNTIME_LIBRARY None)
# CMake 3.25 does not know nvcc's C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" OR
    CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
  message(FATAL_ERROR "LAMINA_GPU=cuda needs nvcc 12.8 or later; given: \
${CMAKE_CUDA_COMPILER_ID} ${CMAKE_CUDA_COMPILER_VERSION}")
endif()
find_package(CUDAToolkit QUIET REQUIRED)

# NOTE: -fmad=false: the numerics contract fixes where products are fused;
# the compiler must not fuse others.
set(LAMINA_CUDA_FLAGS
  -fmad=false --expt-relaxed-constexpr
  -diag-suppress=554  # a conversion whose requires-clause excludes itself
  -Xcompiler=-Wall,-Wextra,-Wshadow,-Wno-missing-field-initializers,-ffp-contract=off
)
if(LAMINA_WARNINGS_AS_ERRORS)
  list(APPEND LAMINA_CUDA_FLAGS -Werror=all-warnings -Xcompiler=-Werror)
endif()

# lamina_cuda_target(<target>): its .cu files are ours.
function(lamina_cuda_target target)
  set_target_properties(${target} PROPERTIES
    CUDA_ARCHITECTURES "${LAMINA_CUDA_ARCHITECTURES}"
    CUDA_STANDARD 20
    CUDA_STANDARD_REQUIRED ON
    CUDA_EXTENSIONS OFF
    CUDA_RUNTIME_LIBRARY None)
endfunction()

# lamina_cuda_forbid_spills(<target>): for the architectures that are tuned.
function(lamina_cuda_forbid_spills target)
  target_compile_options(${target} PRIVATE
    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<CONFIG:Release>>:-Xptxas=-warn-spills>)
endfunction()

# Target cuda_architectures: compiles every .cu file for every architecture
# that the project names and links nothing. Not part of all.
add_custom_target(cuda_architectures)
function(lamina_cuda_all_architectures target)
  add_library(${target}_architectures OBJECT EXCLUDE_FROM_ALL ${ARGN})
  lamina_cuda_target(${target}_architectures)
  list(TRANSFORM LAMINA_CUDA_ALL_ARCHITECTURES APPEND -real
    OUTPUT_VARIABLE architectures)
  set_target_properties(${target}_architectures PROPERTIES
    CUDA_ARCHITECTURES "${architectures}")
  target_link_libraries(${target}_architectures PRIVATE
    ${target} lamina_flags)
  add_dependencies(cuda_architectures ${target}_architectures)
endfunction()
