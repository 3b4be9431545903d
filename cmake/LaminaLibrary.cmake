# Libraries and the package that installs them.
include(CMakePackageConfigHelpers)

# lamina_library(NAME norm HDRS … SRCS … GPU_SRCS … DEPS … PRIVATE_DEPS …
#   [CUDA_SRCS …] [HIP_SRCS …] [SIMT_SRCS …] [MAY_SPILL])
#
# One static library lamina_<name> with the alias lamina::<name> and an include
# root of its own: a build-tree link <root>/lamina/<name> -> source folder, so
# that a header of a library that is not in DEPS cannot be included.
# HDRS are the public headers, installed below include/lamina/<name>/ and
# compiled alone by the target all_verify_interface_header_sets.
# MAY_SPILL: kernels may keep registers in memory; else that is an error on the
# architecture that is tuned.
#
# GPU_SRCS, kernels (.cu) and the host code that only they need (.cc), are part
# of the library in a GPU build; CUDA_SRCS, HIP_SRCS in that vendor's. Without a GPU, and
# with tests, they are in lamina_<name>_simt instead: see lamina_simt_library.
function(lamina_library)
  cmake_parse_arguments(ARG "MAY_SPILL" "NAME"
    "HDRS;SRCS;GPU_SRCS;CUDA_SRCS;HIP_SRCS;SIMT_SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  set(target lamina_${ARG_NAME})
  add_library(${target} STATIC ${ARG_SRCS})
  add_library(lamina::${ARG_NAME} ALIAS ${target})
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${ARG_NAME}
    POSITION_INDEPENDENT_CODE ON
    VERIFY_INTERFACE_HEADER_SETS ON
    CXX_EXTENSIONS OFF)

  set(root ${lamina_BINARY_DIR}/include/${ARG_NAME})
  file(MAKE_DIRECTORY ${root}/lamina)
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${root}/lamina/${ARG_NAME}
    SYMBOLIC)
  list(TRANSFORM ARG_HDRS PREPEND ${root}/lamina/${ARG_NAME}/)
  target_sources(${target} PUBLIC
    FILE_SET HEADERS BASE_DIRS ${root} FILES ${ARG_HDRS})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target}
    PUBLIC ${ARG_DEPS}
    PRIVATE ${ARG_PRIVATE_DEPS} $<BUILD_INTERFACE:lamina_flags>)
  lamina_use_precompiled_headers(${target} lamina_library_headers)

  lamina_component(${ARG_NAME} ${target})

  if(LAMINA_GPU STREQUAL "cuda")
    set(gpu_sources ${ARG_GPU_SRCS} ${ARG_CUDA_SRCS})
    target_sources(${target} PRIVATE ${gpu_sources})
    lamina_cuda_target(${target})
    if(LAMINA_CUDA_ARCHITECTURES STREQUAL "90a" AND NOT ARG_MAY_SPILL)
      lamina_cuda_forbid_spills(${target})
    endif()
    list(FILTER gpu_sources INCLUDE REGEX "\\.cu$")
    if(gpu_sources)
      lamina_cuda_all_architectures(${target} ${gpu_sources})
    endif()
  elseif(LAMINA_GPU STREQUAL "hip")
    target_sources(${target} PRIVATE ${ARG_GPU_SRCS} ${ARG_HIP_SRCS})
    lamina_hip_target(${target} ${ARG_GPU_SRCS})
  elseif(LAMINA_BUILD_TESTS AND (ARG_GPU_SRCS OR ARG_SIMT_SRCS))
    lamina_simt_library(${ARG_NAME}
      SRCS ${ARG_SRCS} ${ARG_GPU_SRCS} ${ARG_SIMT_SRCS}
      DEPS ${ARG_DEPS} ${ARG_PRIVATE_DEPS})
  endif()
endfunction()

# lamina_simt_library(norm SRCS … DEPS …)
#
# For tests, where there is no GPU: objects lamina_<name>_simt with which the
# operators run their GPU kernels on the host (core/device/simt): the kernels,
# compiled by the C++ compiler from a generated source that includes the .cu
# file, and the host code a second time, with LAMINA_SIMT=1. The CPU kernels
# (*_cpu.cc, and those that row by row serve several) are those of
# lamina_<name>. lamina_test links them: see GPU there.
function(lamina_simt_library name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SRCS;DEPS")
  list(FILTER ARG_SRCS EXCLUDE REGEX
    "(_cpu|cpu_target|quantized_row|store_quantized)\\.cc$")
  set(sources "")
  foreach(source IN LISTS ARG_SRCS)
    if(source MATCHES "\\.cu$")
      set(generated ${CMAKE_CURRENT_BINARY_DIR}/simt/${source}.cc)
      file(CONFIGURE OUTPUT ${generated}
        CONTENT "#include \"lamina/${name}/${source}\"\n")
      # Not the compiler that the pragmas are for. They include next to nothing.
      set_source_files_properties(${generated} PROPERTIES
        COMPILE_OPTIONS -Wno-unknown-pragmas
        SKIP_PRECOMPILE_HEADERS ON)
      set(source ${generated})
    endif()
    list(APPEND sources ${source})
  endforeach()
  set(target lamina_${name}_simt)
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${sources})
  set_target_properties(${target} PROPERTIES
    POSITION_INDEPENDENT_CODE ON
    CXX_EXTENSIONS OFF)
  lamina_use_precompiled_headers(${target} lamina_library_headers)
  target_compile_definitions(${target} PRIVATE LAMINA_SIMT=1)
  # What tests run is not timed.
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  target_link_libraries(${target}
    PRIVATE lamina_${name} ${ARG_DEPS} lamina_flags)
endfunction()

# Makes an installable component of a target and notes, in rank order, the
# components that have to be loaded before it.
function(lamina_component name target)
  get_target_property(linked ${target} INTERFACE_LINK_LIBRARIES)
  set(closure "")
  foreach(dependency IN LISTS linked)
    if(dependency MATCHES "lamina::([a-z_]+)")
      get_property(inner GLOBAL PROPERTY LAMINA_CLOSURE_${CMAKE_MATCH_1})
      list(APPEND closure ${inner} ${CMAKE_MATCH_1})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES closure)
  set_property(GLOBAL PROPERTY LAMINA_CLOSURE_${name} "${closure}")
  set_property(GLOBAL APPEND PROPERTY LAMINA_COMPONENTS ${name})
  if(LAMINA_INSTALL)
    install(TARGETS ${target} EXPORT lamina-${name}
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${name}
      FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT ${name})
    install(EXPORT lamina-${name} NAMESPACE lamina::
      FILE lamina-${name}.cmake
      DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lamina COMPONENT ${name})
  endif()
endfunction()

# lamina::lamina links every library added so far.
function(lamina_umbrella)
  get_property(libraries GLOBAL PROPERTY LAMINA_COMPONENTS)
  list(TRANSFORM libraries PREPEND lamina::)
  add_library(lamina_lamina INTERFACE)
  add_library(lamina::lamina ALIAS lamina_lamina)
  set_target_properties(lamina_lamina PROPERTIES EXPORT_NAME lamina)
  target_link_libraries(lamina_lamina INTERFACE ${libraries})
  lamina_component(lamina lamina_lamina)
endfunction()

# Installs laminaConfig.cmake, with the component core.
function(lamina_install_package)
  get_property(LAMINA_COMPONENTS GLOBAL PROPERTY LAMINA_COMPONENTS)
  set(LAMINA_CLOSURES "")
  foreach(name IN LISTS LAMINA_COMPONENTS)
    get_property(closure GLOBAL PROPERTY LAMINA_CLOSURE_${name})
    string(APPEND LAMINA_CLOSURES "set(_lamina_before_${name} ${closure})\n")
  endforeach()
  set(destination ${CMAKE_INSTALL_LIBDIR}/cmake/lamina)
  configure_package_config_file(
    ${lamina_SOURCE_DIR}/cmake/laminaConfig.cmake.in
    ${lamina_BINARY_DIR}/laminaConfig.cmake
    INSTALL_DESTINATION ${destination})
  write_basic_package_version_file(
    ${lamina_BINARY_DIR}/laminaConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  install(FILES
    ${lamina_BINARY_DIR}/laminaConfig.cmake
    ${lamina_BINARY_DIR}/laminaConfigVersion.cmake
    $<$<STREQUAL:${LAMINA_GPU},hip>:${lamina_SOURCE_DIR}/cmake/FindHIPRuntime.cmake>
    DESTINATION ${destination} COMPONENT core)
endfunction()
