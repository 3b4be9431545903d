# The HIP runtime as a C++ program sees it: HIPRuntime::HIPRuntime, its library,
# and HIPRuntime_INCLUDE_DIR. In HIPRuntime_ROOT, CMAKE_HIP_COMPILER_ROCM_ROOT,
# ROCM_PATH (environment), /opt/rocm, or where the distribution puts it.
#
# NOTE: not find_package(hip): Debian's needs a hipcc that Debian's package does
# not bring, and its targets add flags for device code.
set(_hip_hints ${CMAKE_HIP_COMPILER_ROCM_ROOT} $ENV{ROCM_PATH} /opt/rocm)
find_library(HIPRuntime_LIBRARY amdhip64 HINTS ${_hip_hints} PATH_SUFFIXES lib)
find_path(HIPRuntime_INCLUDE_DIR hip/hip_runtime_api.h
  HINTS ${_hip_hints} PATH_SUFFIXES include)
mark_as_advanced(HIPRuntime_LIBRARY HIPRuntime_INCLUDE_DIR)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(HIPRuntime
  REQUIRED_VARS HIPRuntime_LIBRARY HIPRuntime_INCLUDE_DIR)
if(HIPRuntime_FOUND AND NOT TARGET HIPRuntime::HIPRuntime)
  add_library(HIPRuntime::HIPRuntime UNKNOWN IMPORTED)
  set_target_properties(HIPRuntime::HIPRuntime PROPERTIES
    IMPORTED_LOCATION ${HIPRuntime_LIBRARY})
endif()
