# Mutated schedules against a model of their own, and on the executor.
piper_add_test(mutants_test SOURCES mutants_test.cpp mutants_text.cpp mutants_kinds.cpp mutants_model.cpp
               mutants_program.cpp mutants_provenance.cpp LIBS piper_pipeline_test_support)
