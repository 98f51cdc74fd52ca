# ir/model
piper_add_test(model_gradients_test SOURCES model_gradients_test.cpp LIBS piper_model)
piper_add_test(model_regions_test SOURCES model_regions_test.cpp LIBS piper_model)
piper_add_test(model_diagnostics_test SOURCES model_diagnostics_test.cpp LIBS piper_model)
piper_add_test(model_pytorch_test SOURCES model_pytorch_test.cpp LIBS piper_model)
piper_add_test(model_fuzz_test SOURCES model_fuzz_test.cpp LIBS piper_model)
