# Tests of kernels/.
add_library(kernels_cases STATIC kernels_cases.cpp)
target_link_libraries(kernels_cases PUBLIC piper_kernels piper_flags)
piper_add_test(kernels_isa_test SOURCES kernels_isa_test.cpp LIBS kernels_cases)
piper_add_test(kernels_gradient_test SOURCES kernels_gradient_test.cpp LIBS kernels_cases)
piper_add_test(kernels_math_test SOURCES kernels_math_test.cpp LIBS piper_kernels)
piper_add_test(kernels_property_test SOURCES kernels_property_test.cpp LIBS piper_kernels)
piper_add_test(kernels_reference_test SOURCES kernels_reference_test.cpp LIBS kernels_cases)
