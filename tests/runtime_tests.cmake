piper_add_test(runtime_executor_test SOURCES runtime_executor_test.cpp LIBS piper_interpreter) add_executable(
    runtime_rank_program runtime_rank_program.cpp)
    target_link_libraries(runtime_rank_program PRIVATE piper_runtime) piper_add_test(
        runtime_process_test SOURCES runtime_process_test.cpp LIBS piper_runtime)
        add_dependencies(runtime_process_test runtime_rank_program) target_compile_definitions(
            runtime_process_test PRIVATE PIPER_RANK_PROGRAM = "$<TARGET_FILE:runtime_rank_program>")
            piper_add_test(runtime_data_test SOURCES runtime_data_test.cpp LIBS piper_runtime)
                piper_add_test(runtime_checkpoint_test SOURCES runtime_checkpoint_test.cpp LIBS piper_runtime)
                    piper_add_test(runtime_command_test SOURCES runtime_command_test.cpp LIBS piper_runtime)
