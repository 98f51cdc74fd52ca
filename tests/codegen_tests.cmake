# Code generation and the two tools.
piper_add_test(codegen_text_test SOURCES codegen_text_test.cpp LIBS piper_codegen)
piper_add_test(codegen_emit_test SOURCES codegen_emit_test.cpp codegen_job.cpp LIBS piper_codegen piper_job_storage)
piper_add_test(tools_reports_test SOURCES tools_reports_test.cpp codegen_job.cpp LIBS piper_reports)
