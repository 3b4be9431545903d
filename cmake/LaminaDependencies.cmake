# Third-party packages. An installed package is taken first; otherwise the
# pinned commit below is downloaded and built (LAMINA_DEPS=auto).
set(LAMINA_DEPS auto CACHE STRING
  "Third-party packages: auto (installed, else downloaded), system, download")
set_property(CACHE LAMINA_DEPS PROPERTY STRINGS auto system download)
if(NOT LAMINA_DEPS MATCHES "^(auto|system|download)$")
  message(FATAL_ERROR
    "LAMINA_DEPS is auto, system or download; given: ${LAMINA_DEPS}")
endif()
include(FetchContent)

# Abseil 20240722.0, Highway 1.0.7, GoogleTest 1.14.0, benchmark 1.8.3,
# JSON for Modern C++ 3.11.3, CLI11 2.4.2.
set(LAMINA_SOURCE_absl https://github.com/abseil/abseil-cpp.git
  4447c7562e3bc702ade25105912dce503f0c4010)
set(LAMINA_SOURCE_hwy https://github.com/google/highway.git
  ba0900a4957b929390ab73827235557959234fea)
set(LAMINA_SOURCE_GTest https://github.com/google/googletest.git
  f8d7d77c06936315286eb55f8de22cd23c188571)
set(LAMINA_SOURCE_benchmark https://github.com/google/benchmark.git
  344117638c8ff7e239044fd0fa7085839fc03021)
set(LAMINA_SOURCE_nlohmann_json https://github.com/nlohmann/json.git
  9cca280a4d0ccf0c08f47a99aa71d1b0e52f8d03)
set(LAMINA_SOURCE_CLI11 https://github.com/CLIUtils/CLI11.git
  6c7b07a878ad834957b98d0f9ce1dbe0cb204fc9)

# lamina_find_package(<name> "<Debian packages>" [find_package arguments])
#
# A package without a LAMINA_SOURCE_<name> has to be installed.
function(lamina_find_package name debian_packages)
  get_property(downloaded GLOBAL PROPERTY LAMINA_DOWNLOADED)
  if(name IN_LIST downloaded)
    return()
  endif()
  set(wanted "Lamina needs ${name}; on Debian and Ubuntu: apt install \
${debian_packages}")
  if(NOT LAMINA_DEPS STREQUAL "download" OR NOT LAMINA_SOURCE_${name})
    find_package(${name} QUIET ${ARGN})
    if(${name}_FOUND)
      return()
    endif()
  endif()
  if(LAMINA_DEPS STREQUAL "system" OR NOT LAMINA_SOURCE_${name})
    message(FATAL_ERROR "${wanted}")
  endif()

  list(GET LAMINA_SOURCE_${name} 0 repository)
  list(GET LAMINA_SOURCE_${name} 1 commit)
  message(STATUS "${wanted}")
  message(STATUS "Downloading ${name}: ${repository} at ${commit}")
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  set(CMAKE_CXX_STANDARD 20)
  set(BUILD_SHARED_LIBS OFF)
  set(BUILD_TESTING OFF)
  set(ABSL_ENABLE_INSTALL OFF)
  set(ABSL_PROPAGATE_CXX_STD ON)
  set(HWY_ENABLE_CONTRIB OFF CACHE BOOL "")
  set(HWY_ENABLE_EXAMPLES OFF CACHE BOOL "")
  set(HWY_ENABLE_INSTALL OFF CACHE BOOL "")
  set(HWY_ENABLE_TESTS OFF CACHE BOOL "")
  set(INSTALL_GTEST OFF)
  set(BENCHMARK_ENABLE_TESTING OFF)
  set(BENCHMARK_ENABLE_INSTALL OFF)
  set(JSON_Install OFF)
  set(CLI11_BUILD_TESTS OFF)
  set(CLI11_BUILD_EXAMPLES OFF)
  set(CLI11_INSTALL OFF)
  if(LAMINA_DEPS STREQUAL "download")
    set(FETCHCONTENT_TRY_FIND_PACKAGE_MODE NEVER)
  endif()
  FetchContent_Declare(${name}
    GIT_REPOSITORY ${repository}
    GIT_TAG ${commit}
    FIND_PACKAGE_ARGS ${ARGN})
  # Subdirectories inherit: no warnings from its headers. NOTE: the argument
  # SYSTEM of FetchContent_Declare breaks the clone in CMake 3.25.
  set_property(DIRECTORY PROPERTY SYSTEM ON)
  FetchContent_MakeAvailable(${name})
  set_property(DIRECTORY PROPERTY SYSTEM OFF)
  string(TOLOWER ${name} folder)
  set_property(DIRECTORY ${${folder}_SOURCE_DIR} PROPERTY EXCLUDE_FROM_ALL ON)
  set_property(GLOBAL APPEND PROPERTY LAMINA_DOWNLOADED ${name})
  if(name STREQUAL "hwy" AND NOT TARGET hwy::hwy)
    add_library(hwy::hwy ALIAS hwy)
  endif()
endfunction()

# What the libraries need. Tests, benches and apps find theirs in their own
# folders.
lamina_find_package(absl libabsl-dev CONFIG)
lamina_find_package(hwy libhwy-dev CONFIG)
lamina_find_package(OpenMP libgomp1 COMPONENTS CXX)

# An installed Lamina finds its dependencies by find_package.
get_property(downloaded GLOBAL PROPERTY LAMINA_DOWNLOADED)
if(LAMINA_INSTALL AND downloaded)
  message(STATUS "No install rules: ${downloaded} not installed themselves")
  set(LAMINA_INSTALL OFF)
endif()
