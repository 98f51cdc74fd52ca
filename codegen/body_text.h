// One (region, pass) as a C++ function: straight-line, one kernel call an operation, with the shape beside
// each buffer. What is called with what comes from the RankProgram's own rows, so that the function does what
// an interpreter of those rows does; names and shapes come from the ir::Body that the rows were made from,
// where the caller has it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "codegen/text.h"
#include "ir/model/body.h"
#include "runtime/program.h"

namespace piper::codegen {

// The function's name as an identifier with a suffix of ours: "layer_attn_fwd".
std::string BodyFunctionName(std::string_view body_name);

// `void NAME(BodyContext& context) { .. }` with a comment above. `detail` may be null. The keys of random
// calls are further arguments, `uint64_t key_0, ..`, so that layers with dropout share their function.
std::string BodyFunctionText(const runtime::RankProgram& program, const runtime::Body& body,
                             const ir::Body* detail, const std::string& name);

// "BodyContext& context, uint64_t key_0".
std::string BodyFunctionParameters(const runtime::RankProgram& program, const runtime::Body& body);
// An expression of type BodyFunction: the function's name, or one that gives it this body's keys.
std::string BodyFunctionExpression(const runtime::RankProgram& program, const runtime::Body& body,
                                   const std::string& name);

// Equal iff the functions would be equal but for names and comments.
std::string BodyStructure(const runtime::RankProgram& program, const runtime::Body& body);

// The distinct functions of a job. Bodies with equal structure share one, named after the first.
class BodySet {
 public:
  struct Function {
    std::string name;
    std::string parameters;  // for its declaration
    std::string text;
    std::set<uint32_t> users;  // who asked for it
  };
  // The position of the function in functions(). `user` is a role (or any number that stands for one
  // executable).
  size_t Add(const runtime::RankProgram& program, const runtime::Body& body, const ir::Body* detail,
             uint32_t user);
  const std::vector<Function>& functions() const { return functions_; }

 private:
  std::vector<Function> functions_;
  std::map<std::string, size_t> by_structure_;
  NameScope names_;
};

// Finds the ir::Body that a program's rows were made from, by structure.
class DetailIndex {
 public:
  void Add(const ir::Body& body);  // must outlive the index
  void Add(const ir::RegionGraph& regions);
  const ir::Body* Find(const runtime::RankProgram& program, const runtime::Body& body) const;

 private:
  std::map<std::string, const ir::Body*> by_structure_;
};

}  // namespace piper::codegen
