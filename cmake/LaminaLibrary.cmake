# lamina_library(NAME norm HDRS … SRCS … DEPS … PRIVATE_DEPS …)
#
# One static library lamina_<name> with the alias lamina::<name> and an include
# root of its own: a build-tree link <root>/lamina/<name> -> source folder, so
# that a header of a library that is not in DEPS cannot be included.
# HDRS are the public headers, installed below include/lamina/<name>/.
include(CMakePackageConfigHelpers)

function(lamina_library)
  cmake_parse_arguments(ARG "" "NAME" "HDRS;SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  set(target lamina_${ARG_NAME})
  add_library(${target} STATIC ${ARG_SRCS})
  add_library(lamina::${ARG_NAME} ALIAS ${target})
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${ARG_NAME}
    POSITION_INDEPENDENT_CODE ON
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

  if(LAMINA_INSTALL)
    install(TARGETS ${target} EXPORT lamina-${ARG_NAME}
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${ARG_NAME}
      FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT ${ARG_NAME})
    install(EXPORT lamina-${ARG_NAME} NAMESPACE lamina::
      FILE lamina-${ARG_NAME}.cmake
      DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lamina COMPONENT ${ARG_NAME})
  endif()
  set(inner ${ARG_DEPS} ${ARG_PRIVATE_DEPS})
  list(FILTER inner INCLUDE REGEX "^lamina::")
  list(TRANSFORM inner REPLACE "^lamina::" "")
  set_property(GLOBAL APPEND PROPERTY LAMINA_LIBRARIES ${ARG_NAME})
  set_property(GLOBAL PROPERTY LAMINA_DEPS_${ARG_NAME} "${inner}")
endfunction()

# Writes and installs laminaConfig.cmake, which loads a component after the
# components it depends on.
function(lamina_install_package)
  get_property(LAMINA_LIBRARIES GLOBAL PROPERTY LAMINA_LIBRARIES)
  set(LAMINA_COMPONENT_DEPS "")
  foreach(name IN LISTS LAMINA_LIBRARIES)
    get_property(deps GLOBAL PROPERTY LAMINA_DEPS_${name})
    string(APPEND LAMINA_COMPONENT_DEPS "set(_lamina_deps_${name} ${deps})\n")
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
    DESTINATION ${destination} COMPONENT core)
endfunction()
