# LLVM Support: include directories and the static library only. llvm-config's flags would force C++14 without
# exceptions; the shared library costs 11-22 ms a process start, the static one about 1 ms.
find_program(PIPER_LLVM_CONFIG NAMES llvm-config-14 llvm-config REQUIRED)
execute_process(COMMAND ${PIPER_LLVM_CONFIG} --includedir OUTPUT_VARIABLE PIPER_LLVM_INCLUDE
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${PIPER_LLVM_CONFIG} --link-static --libfiles support OUTPUT_VARIABLE PIPER_LLVM_LIBS
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${PIPER_LLVM_CONFIG} --link-static --system-libs support OUTPUT_VARIABLE PIPER_LLVM_SYSTEM
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(PIPER_LLVM_LIBS)
separate_arguments(PIPER_LLVM_SYSTEM)
# Support itself uses neither; asking for them would need two more development packages.
list(FILTER PIPER_LLVM_SYSTEM EXCLUDE REGEX "z3|xml2")
if(NOT TARGET piper_llvm)
  add_library(piper_llvm INTERFACE)
  target_include_directories(piper_llvm SYSTEM INTERFACE ${PIPER_LLVM_INCLUDE})
  target_link_libraries(piper_llvm INTERFACE ${PIPER_LLVM_LIBS} ${PIPER_LLVM_SYSTEM})
endif()
find_package(fmt REQUIRED)
