# Fails the build if a decision of the grammar is not LL(1): the generated parser then predicts by simulation, which
# is slow and must warm up. PARSER: the generated PiperParser.cpp.
file(STRINGS "${PARSER}" predictions REGEX "adaptivePredict")
if(predictions)
  list(LENGTH predictions count)
  file(REMOVE "${PARSER}")
  message(FATAL_ERROR "Piper.g4: ${count} decision(s) need more than one token of lookahead; make each LL(1)")
endif()
