piper_add_test(frontend_elab_test SOURCES frontend_elab_test.cpp LIBS piper_frontend)
piper_add_test(stdlib_test SOURCES stdlib_test.cpp LIBS piper_frontend)
