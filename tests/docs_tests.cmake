# The documentation against the code.
if(TARGET piper_frontend)
  piper_add_test(docs_test SOURCES docs_test.cpp LIBS piper_frontend)
endif()
