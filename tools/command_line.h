// Commands as data: a name, a line of summary, an option table (Boost.Program_options), what runs. Help comes
// from the table; a mistake on the command line says which, names the help, and exits with 2.
#pragma once

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>
#include <string>
#include <vector>

namespace piper::tools {

namespace options = boost::program_options;

struct Command {
  std::string name;        // "run", or two words: "export csv"; empty for a program without commands
  std::string positional;  // "FILE" or "FILES"
  std::string summary;
  // The options that help shows, and those that it does not.
  void (*declare)(options::options_description& shown, options::options_description& hidden);
  int (*run)(const options::variables_map& values);
};

// Parses and runs; returns the exit code. Nothing escapes: an exception is an internal error (70). `program`
// is "piper".
int RunCommandLine(const std::string& program, const std::string& summary,
                   const std::vector<Command>& commands, int argc, char** argv);

// For Command::run: prints "program: error: message" and returns `code`.
int Fail(int code, const std::string& message);

}  // namespace piper::tools
