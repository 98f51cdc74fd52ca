# Tests of kernels/.
add_library(kernels_cases STATIC kernels_cases.cpp)
target_link_libraries(kernels_cases PUBLIC piper_kernels piper_flags)
piper_add_test(kernels_isa_test SOURCES kernels_isa_test.cpp LIBS kernels_cases)
