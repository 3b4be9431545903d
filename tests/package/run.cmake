# One step of the package tests:  cmake -DSTEP=… -D… -P run.cmake
#
# Every step runs in WORK, a folder whose name has a space.
set(prefix "${WORK}/install prefix")

function(run)
  cmake_parse_arguments(ARG "" "EXPECT;FAIL" "COMMAND" ${ARGN})
  execute_process(COMMAND ${ARG_COMMAND}
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(ARG_FAIL)
    if(result EQUAL 0)
      message(FATAL_ERROR "succeeded, want an error '${ARG_FAIL}':\n${output}")
    endif()
    # CMake wraps its messages.
    string(REGEX REPLACE "[ \n]+" " " output "${output}")
    set(ARG_EXPECT "${ARG_FAIL}")
  elseif(NOT result EQUAL 0)
    message(FATAL_ERROR "failed (${result}): ${ARG_COMMAND}\n${output}")
  endif()
  if(ARG_EXPECT)
    string(FIND "${output}" "${ARG_EXPECT}" found)
    if(found EQUAL -1)
      message(FATAL_ERROR "want '${ARG_EXPECT}', got:\n${output}")
    endif()
  endif()
endfunction()

# configure(<build folder> [FAIL <message>] [<variables>…])
function(configure folder)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "FAIL" "")
  file(REMOVE_RECURSE "${WORK}/${folder}")
  run(COMMAND ${CMAKE_COMMAND} -G ${GENERATOR} -S ${CONSUMER}
      -B "${WORK}/${folder}" -DCMAKE_CXX_COMPILER=${CXX}
      -DCONSUMER_COMPONENTS=norm
      ${ARG_UNPARSED_ARGUMENTS}
    FAIL ${ARG_FAIL})
endfunction()

set(answer "1.20 1.60 0.00 0.00 1.00 1.00 1.00 1.00")

if(STEP STREQUAL "install")
  file(REMOVE_RECURSE "${prefix}")
  run(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix "${prefix}")
elseif(STEP STREQUAL "find_package")
  configure("find package" -DCMAKE_PREFIX_PATH=${prefix} -DCONSUMER_VERSION=0.1)
  run(COMMAND ${CMAKE_COMMAND} --build "${WORK}/find package")
  run(COMMAND "${WORK}/find package/consumer" EXPECT "${answer}")
elseif(STEP STREQUAL "other_version")
  configure("other version" -DCMAKE_PREFIX_PATH=${prefix}
    -DCONSUMER_VERSION=0.999 FAIL "compatible with requested version \"0.999\"")
elseif(STEP STREQUAL "unknown_component")
  configure("unknown component" -DCMAKE_PREFIX_PATH=${prefix}
    -DCONSUMER_COMPONENTS=levitation
    FAIL "no component 'levitation' installed")
elseif(STEP STREQUAL "one_component")
  set(prefix "${WORK}/one component prefix")
  file(REMOVE_RECURSE "${prefix}")
  foreach(component core reduce quant)
    run(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix "${prefix}"
      --component ${component})
  endforeach()
  configure("one component" -DCMAKE_PREFIX_PATH=${prefix}
    FAIL "no component 'norm' installed")
  run(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix "${prefix}"
    --component norm)
  configure("one component" -DCMAKE_PREFIX_PATH=${prefix})
  if(EXISTS "${prefix}/include/lamina/activation")
    message(FATAL_ERROR "--component norm installed activation too")
  endif()
elseif(STEP STREQUAL "subdirectory")
  configure(subdirectory -DCONSUMER_MODE=subdirectory -DLAMINA_SOURCE=${SOURCE}
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
  run(COMMAND ${CMAKE_COMMAND} --build "${WORK}/subdirectory" --target consumer)
  run(COMMAND "${WORK}/subdirectory/consumer" EXPECT "${answer}")
elseif(STEP STREQUAL "unknown_gpu_backend")
  run(COMMAND ${CMAKE_COMMAND} --preset cpu -S ${SOURCE} -B "${WORK}/other"
    -DLAMINA_GPU=vulkan FAIL "LAMINA_GPU is none, cuda or hip; given: vulkan")
else()
  message(FATAL_ERROR "unknown step ${STEP}")
endif()
