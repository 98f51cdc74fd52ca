# Code generation and the two tools.
piper_add_test(codegen_text_test SOURCES codegen_text_test.cpp LIBS piper_codegen)
piper_add_test(codegen_emit_test SOURCES codegen_emit_test.cpp codegen_job.cpp LIBS piper_codegen piper_job_storage)
piper_add_test(tools_pictures_test SOURCES tools_pictures_test.cpp LIBS piper_reports)
piper_add_test(tools_reports_test SOURCES tools_reports_test.cpp codegen_job.cpp LIBS piper_reports)
piper_add_test(codegen_directory_test SOURCES codegen_directory_test.cpp LIBS piper_codegen)
# Starts the C++ compiler: in the build tree it finds the runtime as piperc does.
piper_add_test(codegen_build_test LABEL slow SOURCES codegen_build_test.cpp codegen_job.cpp
               LIBS piper_codegen piper_job_storage piper_interpreter)
set_target_properties(codegen_build_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
piper_add_test(tools_cli_test SOURCES tools_cli_test.cpp)
piper_add_test(tools_compile_test LABEL slow SOURCES tools_compile_test.cpp)
piper_add_test(tools_examples_test SOURCES tools_examples_test.cpp)
target_compile_definitions(tools_examples_test PRIVATE PIPER_EXAMPLES="${CMAKE_SOURCE_DIR}/examples")
piper_add_test(tools_training_test LABEL slow SOURCES tools_training_test.cpp)
piper_add_test(tools_readme_test SOURCES tools_readme_test.cpp)
foreach(test tools_cli_test tools_compile_test tools_examples_test tools_training_test tools_readme_test)
  target_compile_definitions(${test} PRIVATE PIPER_BINARY="$<TARGET_FILE:piper>" PIPERC_BINARY="$<TARGET_FILE:piperc>")
  add_dependencies(${test} piper piperc)
endforeach()

# clang-tidy's short list on a fixed few sources, where it is installed: see CONTRIBUTING.md.
add_test(NAME tidy_sample COMMAND sh tools/tidy.sh ${CMAKE_BINARY_DIR} main sample WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(tidy_sample PROPERTIES LABELS slow SKIP_RETURN_CODE 77 TIMEOUT 300)

add_test(NAME format_check COMMAND sh tools/format.sh --check WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(format_check PROPERTIES LABELS slow SKIP_RETURN_CODE 77 TIMEOUT 120)
