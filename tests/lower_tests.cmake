# Lowering, the clock, and the proofs on RankPrograms.
piper_add_test(simulator_test SOURCES simulator_test.cpp LIBS piper_cost piper_job_storage)
piper_add_test(contention_test SOURCES contention_test.cpp LIBS piper_frontend piper_pipeline)
piper_add_test(lower_test SOURCES lower_test.cpp LIBS piper_lower)
piper_add_test(deadlock_test SOURCES deadlock_test.cpp LIBS piper_frontend piper_pipeline)
piper_add_test(memory_test SOURCES memory_test.cpp LIBS piper_frontend piper_pipeline piper_interpreter
               piper_runtime)
piper_add_test(lower_asserts_test SOURCES lower_asserts_test.cpp LIBS piper_check)
