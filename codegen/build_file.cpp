#include "codegen/build_file.h"

#include <fmt/format.h>

#include <algorithm>

namespace piper::codegen {
namespace {

// A CMake quoted argument.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\' || c == '$' || c == ';') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

const std::vector<std::string>& EmittedCompileFlags() {
  static const std::vector<std::string> flags = {"-std=c++20", "-O2",     "-Wall",
                                                 "-Wextra",    "-Werror", "-ffp-contract=off"};
  return flags;
}

std::string BuildFileText(const EmitInput& input, const Emitted& emitted) {
  std::string text =
      "# Printed by piperc. Builds what it built:  cmake -S . -B build && cmake --build build\n"
      "# On another machine say where Piper is:    -DPIPER_INCLUDE=.. -DPIPER_LIBRARIES=..;..\n"
      "cmake_minimum_required(VERSION 3.18)\n"
      "project(PiperProgram CXX)\n"
      "if(NOT CMAKE_BUILD_TYPE)\n"
      "  set(CMAKE_BUILD_TYPE Release)\n"
      "endif()\n"
      "set(CMAKE_CXX_STANDARD 20)\n"
      "set(CMAKE_CXX_STANDARD_REQUIRED ON)\n"
      "set(CMAKE_CXX_EXTENSIONS OFF)\n"
      "find_package(Threads REQUIRED)\n";
  text += fmt::format("set(PIPER_INCLUDE {} CACHE PATH \"holds runtime/ and kernels/\")\n",
                      Quoted(input.include_directory));
  text += "set(PIPER_LIBRARIES";
  for (const std::string& library : input.libraries) text += ' ' + Quoted(library);
  text += " CACHE STRING \"static libraries of the runtime, in link order\")\n";
  text += fmt::format("set(PIPER_TARGET_CPU {} CACHE STRING \"-march\")\n\n", Quoted(input.target_cpu));
  text +=
      "add_library(flags INTERFACE)\n"
      "target_compile_options(flags INTERFACE -Wall -Wextra -Werror -ffp-contract=off)\n"
      "target_include_directories(flags INTERFACE ${PIPER_INCLUDE})\n"
      "target_link_libraries(flags INTERFACE ${PIPER_LIBRARIES} Threads::Threads ${CMAKE_DL_LIBS})\n\n";
  // What several executables link is compiled once.
  std::vector<std::string> shared;
  for (const EmittedExecutable& e : emitted.executables) {
    for (const std::string& source : e.sources) {
      if (source == "src/" + e.name + ".cpp") continue;
      if (std::find(shared.begin(), shared.end(), source) == shared.end()) shared.push_back(source);
    }
  }
  auto object = [](const std::string& source) {
    return source.substr(4, source.size() - 8) + "_object";  // src/job.cpp -> job_object
  };
  for (const std::string& source : shared) {
    const bool baseline = std::find(emitted.baseline_sources.begin(), emitted.baseline_sources.end(),
                                    source) != emitted.baseline_sources.end();
    text += fmt::format("add_library({} OBJECT {})\ntarget_link_libraries({} PRIVATE flags)\n",
                        object(source), source, object(source));
    if (!baseline)
      text +=
          fmt::format("target_compile_options({} PRIVATE -march=${{PIPER_TARGET_CPU}})\n", object(source));
  }
  for (const EmittedExecutable& e : emitted.executables) {
    text += fmt::format("\nadd_executable({}", e.name);
    for (const std::string& source : e.sources) {
      text += source == "src/" + e.name + ".cpp" ? " " + source
                                                 : fmt::format(" $<TARGET_OBJECTS:{}>", object(source));
    }
    text += fmt::format(")\ntarget_link_libraries({} PRIVATE flags)\n", e.name);
    text += fmt::format("target_compile_options({} PRIVATE -march=${{PIPER_TARGET_CPU}})\n", e.name);
  }
  return text;
}

}  // namespace piper::codegen
