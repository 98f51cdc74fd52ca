# The whole road, from `.piper` text to numbers.
add_library(piper_pipeline_test_support STATIC pipeline_support.cpp pipeline_support.h)
target_link_libraries(piper_pipeline_test_support
  PUBLIC piper_flags piper_tools piper_sample_job piper_interpreter GTest::gtest)
foreach(name
    allocation arena cuts determinism directives edges faults fused
    foreign layouts matrix memory numerics offload post_validation
    pytorch random recompute rendezvous sabotage streams training)
  piper_add_test(pipeline_${name}_test SOURCES pipeline_${name}_test.cpp LIBS piper_pipeline_test_support)
endforeach()
