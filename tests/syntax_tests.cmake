# Scanner, parser, syntax tree, formatter.
piper_add_test(frontend_parser_test SOURCES frontend_parser_test.cpp LIBS piper_syntax)
piper_add_test(frontend_parser_errors_test SOURCES frontend_parser_errors_test.cpp LIBS piper_syntax)
piper_add_test(frontend_format_test SOURCES frontend_format_test.cpp LIBS piper_syntax)
