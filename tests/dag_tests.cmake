# The training DAG and the directives.
add_library(piper_dag_test_support STATIC dag_test_support.cpp)
target_link_libraries(piper_dag_test_support PUBLIC piper_directives piper_check GTest::gtest)
piper_add_test(dag_text_test SOURCES dag_text_test.cpp LIBS piper_dag_test_support)
piper_add_test(gradients_test SOURCES gradients_test.cpp LIBS piper_dag_test_support)
piper_add_test(dag_scale_test SOURCES dag_scale_test.cpp LIBS piper_dag_test_support)
