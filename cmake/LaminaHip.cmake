# HIP as a language, for LAMINA_GPU=hip: sets LAMINA_HIP_FLAGS, the options of
# our own .cu files, and LAMINA_HIP_ARCHITECTURES.
#
# Needs a clang that knows the architectures, and the HIP runtime: a ROCm
# release (/opt/rocm, ROCM_PATH or CMAKE_HIP_COMPILER_ROCM_ROOT), or Debian's
# clang-22, clang-tools-22, lld-22, llvm-22 and libamdhip64-dev. Our device code
# uses the compiler's builtins alone, so no ROCm device libraries are needed.
set(LAMINA_HIP_ALL_ARCHITECTURES gfx90a gfx942 gfx950 gfx1100 gfx1201)

# NOTE: asked before the language is enabled, which fills it in.
if(DEFINED CMAKE_HIP_ARCHITECTURES)
  set(LAMINA_HIP_ARCHITECTURES "${CMAKE_HIP_ARCHITECTURES}")
else()
  set(LAMINA_HIP_ARCHITECTURES ${LAMINA_HIP_ALL_ARCHITECTURES})
  set(CMAKE_HIP_ARCHITECTURES ${LAMINA_HIP_ALL_ARCHITECTURES})
endif()

set(rocm "")
foreach(root ${CMAKE_HIP_COMPILER_ROCM_ROOT} $ENV{ROCM_PATH} /opt/rocm)
  if(NOT rocm AND EXISTS ${root}/lib/cmake/hip-lang/hip-lang-config.cmake)
    set(rocm ${root})
  endif()
endforeach()
if(NOT CMAKE_HIP_COMPILER AND NOT DEFINED ENV{HIPCXX})
  find_program(LAMINA_HIP_CLANG
    NAMES clang++ NAMES_PER_DIR NO_DEFAULT_PATH
    PATHS ${rocm}/llvm/bin ${rocm}/lib/llvm/bin
      /usr/lib/llvm-22/bin /usr/lib/llvm-21/bin)
  mark_as_advanced(LAMINA_HIP_CLANG)
  if(NOT LAMINA_HIP_CLANG)
    message(FATAL_ERROR "LAMINA_GPU=hip needs ROCm's clang, or clang 21 or \
later; on Debian: apt install clang-22 clang-tools-22 lld-22 llvm-22 \
libamdhip64-dev")
  endif()
  set(CMAKE_HIP_COMPILER ${LAMINA_HIP_CLANG} CACHE FILEPATH "HIP compiler")
endif()
if(NOT rocm)
  # What CMake wants to find of a ROCm release: one target. NOTE: Debian's own
  # file is in another place and points to places of yet other packages.
  set(rocm ${CMAKE_BINARY_DIR}/rocm)
  file(CONFIGURE OUTPUT ${rocm}/lib/cmake/hip-lang/hip-lang-config.cmake
    CONTENT "if(NOT TARGET hip-lang::device)
  add_library(hip-lang::device INTERFACE IMPORTED)
endif()
set(_CMAKE_HIP_DEVICE_RUNTIME_TARGET hip-lang::device)
")
  set(CMAKE_HIP_COMPILER_ROCM_ROOT ${rocm})
  # For CMake's own check of the compiler.
  set(CMAKE_HIP_FLAGS_INIT "-nogpuinc -nogpulib")
endif()
enable_language(HIP)
lamina_find_package(HIPRuntime libamdhip64-dev MODULE)

# NOTE: -ffp-contract=off: the numerics contract fixes where products are
# fused; the compiler must not fuse others. Code object version 5 is what ROCm
# 6 and 7 both load.
set(LAMINA_HIP_FLAGS
  -nogpuinc -nogpulib -mcode-object-version=5 -ffp-contract=off
  -Wall -Wextra -Wshadow -Wno-missing-field-initializers)
if(LAMINA_WARNINGS_AS_ERRORS)
  list(APPEND LAMINA_HIP_FLAGS -Werror)
endif()

# lamina_hip_target(<target> <sources>…): its .cu files are ours.
function(lamina_hip_target target)
  list(FILTER ARGN INCLUDE REGEX "\\.cu$")
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE HIP)
  set_target_properties(${target} PROPERTIES
    HIP_ARCHITECTURES "${LAMINA_HIP_ARCHITECTURES}"
    HIP_STANDARD 20
    HIP_STANDARD_REQUIRED ON
    HIP_EXTENSIONS OFF)
endfunction()
