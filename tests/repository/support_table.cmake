# Compares what PROGRAM prints with DOCUMENT.
execute_process(COMMAND ${PROGRAM}
  OUTPUT_VARIABLE printed COMMAND_ERROR_IS_FATAL ANY)
file(READ ${DOCUMENT} written)
if(NOT printed STREQUAL written)
  message(FATAL_ERROR
    "${DOCUMENT} is stale: run scripts/update_support_table. Now:\n${printed}")
endif()
