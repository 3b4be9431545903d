# Every third-party package that the libraries need, found in the system.
# Tests, benches and apps find theirs in their own folders.
function(lamina_find_package name debian_package)
  find_package(${name} QUIET ${ARGN})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR
      "Lamina needs ${name}; on Debian and Ubuntu: apt install ${debian_package}")
  endif()
endfunction()

lamina_find_package(absl libabsl-dev CONFIG)
lamina_find_package(hwy libhwy-dev CONFIG)
lamina_find_package(OpenMP libgomp1 COMPONENTS CXX)
