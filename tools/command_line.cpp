#include "tools/command_line.h"

#include <fmt/format.h>

#include <boost/program_options/parsers.hpp>
#include <boost/program_options/positional_options.hpp>
#include <boost/program_options/value_semantic.hpp>
#include <cstdio>
#include <exception>
#include <new>
#include <sstream>

#include "tools/exit_codes.h"

namespace piper::tools {
namespace {

std::string program_name = "piper";

std::string Usage(const std::string& program, const Command& command) {
  return fmt::format("usage: {}{}{} [options] {}", program, command.name.empty() ? "" : " ", command.name,
                     command.positional);
}

std::string Help(const std::string& program, const Command& command,
                 const options::options_description& shown) {
  std::ostringstream table;
  table << shown;
  return fmt::format("{}\n{}\n\n{}", Usage(program, command), command.summary, table.str());
}

std::string Overview(const std::string& program, const std::string& summary,
                     const std::vector<Command>& commands) {
  std::string text = fmt::format("usage: {} COMMAND [options] FILE\n{}\n\n", program, summary);
  for (const Command& command : commands) text += fmt::format("  {:<12} {}\n", command.name, command.summary);
  return text + fmt::format("\n{} COMMAND --help lists a command's options\n", program);
}

int RunCommand(const std::string& program, const Command& command, const std::vector<std::string>& words) {
  options::options_description shown("options"), hidden, positional;
  shown.add_options()("help,h", "print this help");
  command.declare(shown, hidden);
  const bool many = command.positional == "FILES";
  if (many) {
    positional.add_options()("input", options::value<std::vector<std::string>>()->required());
  } else {
    positional.add_options()("input", options::value<std::string>()->required());
  }
  options::options_description all;
  all.add(shown).add(hidden).add(positional);
  options::positional_options_description places;
  places.add("input", many ? -1 : 1);
  options::variables_map values;
  try {
    // No guessing: an abbreviation that works today would mean something else once an option is added.
    const int style =
        options::command_line_style::default_style & ~options::command_line_style::allow_guessing;
    options::store(options::command_line_parser(words).options(all).positional(places).style(style).run(),
                   values);
    if (values.count("help") != 0) {
      const std::string text = Help(program, command, shown);
      std::fwrite(text.data(), 1, text.size(), stdout);
      return kExitOk;
    }
    options::notify(values);
  } catch (const options::required_option&) {
    fmt::print(stderr, "{}: error: no {} given\n{}\n", program, many ? "files" : "file",
               Usage(program, command));
    return kExitUsage;
  } catch (const options::too_many_positional_options_error&) {
    fmt::print(stderr, "{}: error: more than one file given\n{}\n", program, Usage(program, command));
    return kExitUsage;
  } catch (const options::error& error) {
    fmt::print(stderr, "{}: error: {}\nhint: see {}{}{} --help\n", program, error.what(), program,
               command.name.empty() ? "" : " ", command.name);
    return kExitUsage;
  }
  return command.run(values);
}

int PrintVersion(const std::string& program) {
  fmt::print("{} {}\n", program, PIPER_VERSION);
  return kExitOk;
}

// What was printed must have arrived: a full disk or a closed pipe behind standard output is an error.
int Finish(int code) {
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  return lost && code == kExitOk ? Fail(kExitIo, "cannot write the standard output") : code;
}

}  // namespace

int Fail(int code, const std::string& message) {
  fmt::print(stderr, "{}: error: {}\n", program_name, message);
  return code;
}

int RunCommandLine(const std::string& program, const std::string& summary,
                   const std::vector<Command>& commands, int argc, char** argv) try {
  program_name = program;
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 1 && words[0] == "--version") return Finish(PrintVersion(program));
  if (commands.size() == 1 && commands[0].name.empty())
    return Finish(RunCommand(program, commands[0], words));
  const std::string overview = Overview(program, summary, commands);
  if (words.empty()) {
    std::fwrite(overview.data(), 1, overview.size(), stderr);
    return kExitUsage;
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    std::fwrite(overview.data(), 1, overview.size(), stdout);
    return kExitOk;
  }
  std::vector<Command> group;  // commands of two words that begin with the first one given
  for (const Command& command : commands) {
    if (command.name == words[0])
      return Finish(RunCommand(program, command, {words.begin() + 1, words.end()}));
    if (words.size() > 1 && command.name == words[0] + " " + words[1])
      return Finish(RunCommand(program, command, {words.begin() + 2, words.end()}));
    if (command.name.rfind(words[0] + " ", 0) == 0) group.push_back(command);
  }
  if (!group.empty()) {
    const bool help = words.size() == 2 && (words[1] == "--help" || words[1] == "-h");
    std::string text = help ? "" : fmt::format("{}: error: ", program);
    if (!help && words.size() > 1) text += fmt::format("there is no command '{} {}'; ", words[0], words[1]);
    text += fmt::format("{} takes one of\n", words[0]);
    for (const Command& command : group) text += fmt::format("  {:<12} {}\n", command.name, command.summary);
    std::fwrite(text.data(), 1, text.size(), help ? stdout : stderr);
    return Finish(help ? kExitOk : kExitUsage);
  }
  fmt::print(stderr, "{}: error: there is no command '{}'\nhint: see {} --help\n", program, words[0],
             program);
  return kExitUsage;
} catch (const std::bad_alloc&) {
  fmt::print(stderr, "{}: error: out of memory\n", program);
  return kExitIo;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}: internal error: {}\n", program, error.what());
  return kExitInternal;
}

}  // namespace piper::tools
