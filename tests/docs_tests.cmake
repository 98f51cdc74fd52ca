# The documentation against the code.
piper_add_test(tools_dot_test SOURCES tools_dot_test.cpp LIBS piper_frontend piper_pipeline piper_reports)
piper_add_test(docs_test SOURCES docs_test.cpp LIBS piper_frontend piper_pipeline piper_reports)
