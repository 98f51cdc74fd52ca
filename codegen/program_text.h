// A RankProgram as constant tables. The schedule is a table, never unrolled code: 100,000 tasks compile in
// about a second as rows and in minutes as statements.
#pragma once

#include <string>
#include <vector>

#include "runtime/program.h"

namespace piper::codegen {

// Tables and a `constexpr RankProgram k<prefix>Program`, to stand inside a namespace where `BodyContext` and
// the names of runtime/program.h are visible. `functions[i]` is the expression for body i's function.
// `strings` are the job's, for the comments beside the tasks.
std::string ProgramText(const runtime::RankProgram& program, const std::string& prefix,
                        const std::vector<std::string>& functions, std::span<const char* const> strings);

// A RankProgram of another role as the executable of this one sees it: its name and its ranks.
std::string OutlineText(const runtime::RankProgram& program, const std::string& prefix);

}  // namespace piper::codegen
