# Options and the one place where compile flags are decided.
option(PIPER_BUILD_TESTS "Build the tests" ON)
option(PIPER_SOAK "Let tests run for hours (make soak)" OFF)
option(PIPER_SANITIZE "Build with address and undefined-behaviour sanitizers" OFF)

find_program(PIPER_CCACHE ccache)
if(PIPER_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${PIPER_CCACHE}")
endif()

# Our own code: strict warnings, and no contraction of a*b+c behind our back (docs/decisions.md, numerics).
add_library(piper_flags INTERFACE)
target_compile_options(piper_flags INTERFACE -Wall -Wextra -Werror -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC bug 105651: at -O3, std::string operator+ is taken for an overlapping copy.
  target_compile_options(piper_flags INTERFACE -Wno-restrict)
endif()
target_include_directories(piper_flags INTERFACE "${CMAKE_SOURCE_DIR}")
if(PIPER_SANITIZE)
  target_compile_options(piper_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all
                                               -fno-omit-frame-pointer)
  target_link_options(piper_flags INTERFACE -fsanitize=address,undefined)
endif()
# LLVM's linker takes a third of the time, which counts for some hundred test programs with debug information.
find_program(PIPER_LLD ld.lld)
if(PIPER_LLD)
  target_link_options(piper_flags INTERFACE -fuse-ld=lld)
endif()
find_package(Threads REQUIRED)
