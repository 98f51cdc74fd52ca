#include "codegen/program_text.h"

#include <fmt/format.h>

#include "codegen/table.h"
#include "codegen/text.h"

namespace piper::codegen {
namespace {

using runtime::kNone;

template <typename T>
std::string Number(T value) {
  return IntLiteral(static_cast<int64_t>(value));
}
std::string Index(uint32_t value) { return value == kNone ? "kNone" : Number(value); }

template <typename T>
std::vector<std::string> Indices(std::span<const T> values) {
  std::vector<std::string> cells;
  for (T value : values) cells.push_back(Index(static_cast<uint32_t>(value)));
  return cells;
}

std::string BufferKindText(runtime::BufferKind kind) {
  constexpr const char* kNames[] = {"kParameter", "kOptimizerState", "kGradient",  "kScalar",
                                    "kInput",     "kActivation",     "kCotangent", "kTransient",
                                    "kScratch",   "kMessage",        "kSaved",     "kHost"};
  return fmt::format("BufferKind::{}", kNames[static_cast<size_t>(kind)]);
}
std::string ElementTypeText(runtime::ElementType type) {
  constexpr const char* kNames[] = {"kF32", "kF64", "kBF16", "kI32"};
  return fmt::format("ElementType::{}", kNames[static_cast<size_t>(type)]);
}
std::string TaskKindText(runtime::TaskKind kind) {
  constexpr const char* kNames[] = {
      "kLoad",   "kCompute",  "kAccumulate", "kSend", "kRecv",     "kCollective",     "kSumSquares", "kClip",
      "kUpdate", "kLossFold", "kBarrier",    "kSave", "kValidate", "kPartialSquares", "kCopy"};
  return fmt::format("TaskKind::{}", kNames[static_cast<size_t>(kind)]);
}
std::string FoldKindText(runtime::FoldKind fold) {
  return fold == runtime::FoldKind::kPairwise ? "FoldKind::kPairwise" : "FoldKind::kLeft";
}

std::string CollectiveKindText(runtime::CollectiveKind kind) {
  constexpr const char* kNames[] = {"kAllReduce", "kReduceScatter", "kAllGather", "kAllToAll", "kBroadcast"};
  return fmt::format("CollectiveKind::{}", kNames[static_cast<size_t>(kind)]);
}

// The tables of one program; every name begins with k<prefix>.
class Printer {
 public:
  Printer(const runtime::RankProgram& program, std::string prefix)
      : program_(program), prefix_(std::move(prefix)) {}

  std::string Ranks(bool whole);
  std::string Bodies(const std::vector<std::string>& functions);
  std::string Memory();
  std::string Streams();
  std::string Tasks(std::span<const char* const> strings);
  std::string Collectives();
  std::string Whole(bool outline);

 private:
  std::string Name(const char* what) const { return fmt::format("k{}{}", prefix_, what); }
  // Prints the table and remembers its view for the program's own row.
  std::string Finish(const Table& table, std::string* view) {
    *view = table.View();
    return table.size() == 0 ? std::string{} : table.Print() + '\n';
  }

  const runtime::RankProgram& program_;
  std::string prefix_;
  std::string ranks_ = "{}", bodies_ = "{}", calls_ = "{}", buffers_ = "{}", parameters_ = "{}",
              streams_ = "{}", tasks_ = "{}", operands_ = "{}", waits_ = "{}", collectives_ = "{}",
              terms_ = "{}", peer_roles_ = "{}", communicators_ = "{}";
};

std::string Printer::Ranks(bool whole) {
  Table peers("uint32_t", Name("Peers"), "the rank in each peer slot, a line a rank");
  Table groups("uint32_t", Name("Groups"), "the group in each communicator slot, a line a rank");
  Table ranks("RankRow", Name("Ranks"), "rank, replica, peers, groups");
  for (const runtime::RankRow& row : program_.ranks) {
    const size_t peer = whole ? peers.Numbers(Indices(row.peers)) : 0;
    const size_t group = whole ? groups.Numbers(Indices(row.groups)) : 0;
    ranks.Row({Number(row.rank), Number(row.replica), peers.View(peer, whole ? row.peers.size() : 0),
               groups.View(group, whole ? row.groups.size() : 0)});
  }
  std::string text, unused;
  text += Finish(peers, &unused);
  text += Finish(groups, &unused);
  return text + Finish(ranks, &ranks_);
}

std::string Printer::Bodies(const std::vector<std::string>& functions) {
  // The calls of an emitted body have names only, for reports: which operation a body was in.
  Table calls("Call", Name("Calls"), "kernel, operands, integers, scalars, random key, operation");
  Table bodies("Body", Name("Bodies"), "name, function, first call, calls, formals, scratch bytes");
  for (size_t i = 0; i < program_.bodies.size(); ++i) {
    const runtime::Body& body = program_.bodies[i];
    const size_t first = calls.size();
    for (uint32_t k = 0; k < body.call_count; ++k) {
      const runtime::Call& call = program_.calls[body.first_call + k];
      calls.Row({StringLiteral(call.kernel), "0", "0", "0", "0", "0", "0", "0",
                 StringLiteral(call.operation == nullptr ? "" : call.operation)});
    }
    bodies.Row({StringLiteral(body.name), functions[i], Number(first), Number(body.call_count),
                Number(body.formal_count), Number(body.scratch_bytes)},
               fmt::format("{}", i));
  }
  return Finish(calls, &calls_) + Finish(bodies, &bodies_);
}

std::string Printer::Memory() {
  Table buffers("Buffer", Name("Buffers"), "offset, bytes, kind, element type, name");
  for (size_t i = 0; i < program_.buffers.size(); ++i) {
    const runtime::Buffer& b = program_.buffers[i];
    buffers.Row({Number(b.offset), Number(b.bytes), BufferKindText(b.kind), ElementTypeText(b.type),
                 StringLiteral(b.name == nullptr ? "" : b.name)},
                fmt::format("{}", i));
  }
  Table dims("int64_t", Name("Dims"), "of the parameters held, a line each");
  Table parameters(
      "Parameter", Name("Parameters"),
      "name, elements, dims, initialiser, value, gradient, state, optimizer, weight decay, position "
      "in the model, owner, copy");
  for (const runtime::Parameter& p : program_.parameters) {
    std::vector<std::string> sizes;
    for (int64_t size : p.dims) sizes.push_back(Number(size));
    const size_t first = dims.Numbers(sizes);
    parameters.Row(
        {StringLiteral(p.name), Number(p.elements), dims.View(first, sizes.size()),
         fmt::format("{{{}, {}, {}}}", p.init.kind, DoubleLiteral(p.init.a), DoubleLiteral(p.init.b)),
         Index(p.value), Index(p.gradient), fmt::format("{{{}, {}}}", Index(p.state[0]), Index(p.state[1])),
         Index(p.optimizer), DoubleLiteral(p.weight_decay), Number(p.global_index), Number(p.owner),
         Index(p.saved)});
  }
  std::string text = Finish(buffers, &buffers_), unused;
  text += Finish(dims, &unused);
  return text + Finish(parameters, &parameters_);
}

std::string Printer::Streams() {
  Table streams("Stream", Name("Streams"), "name, first task, tasks, computes, scratch");
  for (size_t i = 0; i < program_.streams.size(); ++i) {
    const runtime::Stream& s = program_.streams[i];
    streams.Row({StringLiteral(s.name), Number(s.first_task), Number(s.task_count), Number(s.computes),
                 Index(s.scratch)},
                fmt::format("{}", i));
  }
  return Finish(streams, &streams_);
}

std::string Printer::Tasks(std::span<const char* const> strings) {
  auto string = [&](uint32_t index) {
    return index < strings.size() ? std::string_view(strings[index]) : "";
  };
  Table tasks(
      "Task", Name("Tasks"),
      "kind, flag, stream, microbatch, argument, operands (first, count), waits (first, count), bytes, "
      "cost in ps, name, origin, atomic, key");
  for (size_t i = 0; i < program_.tasks.size(); ++i) {
    const runtime::Task& t = program_.tasks[i];
    std::string comment = fmt::format("{}: {}", i, CommentText(string(t.name)));
    if (t.microbatch >= 0) comment += fmt::format(" mb {}", t.microbatch);
    if (t.origin != 0) comment += fmt::format(" @ {}", CommentText(string(t.origin)));
    tasks.Row(
        {TaskKindText(t.kind), Number(t.flag), Number(t.stream), Number(t.microbatch), Index(t.argument),
         Number(t.first_operand), Number(t.operand_count), Number(t.first_wait), Number(t.wait_count),
         Number(t.bytes), Number(t.cost), Number(t.name), Number(t.origin), Index(t.atomic), Index(t.key)},
        comment);
  }
  // The lists that the tasks refer to, a line a task where they are laid out in task order.
  Table operands("uint32_t", Name("Operands"), "buffers, a line a task");
  Table waits("uint32_t", Name("Waits"), "tasks of other streams, a line a task");
  auto lists = [&](Table& table, std::span<const uint32_t> values, auto first, auto count) {
    for (size_t i = 0; i < program_.tasks.size(); ++i) {
      const runtime::Task& t = program_.tasks[i];
      if (t.*first != table.size() || t.*count == 0) continue;
      table.Numbers(Indices(values.subspan(t.*first, t.*count)), fmt::format("{}", i));
    }
    if (table.size() < values.size()) table.Numbers(Indices(values.subspan(table.size())));
  };
  lists(operands, program_.task_operands, &runtime::Task::first_operand, &runtime::Task::operand_count);
  lists(waits, program_.waits, &runtime::Task::first_wait, &runtime::Task::wait_count);
  return Finish(tasks, &tasks_) + Finish(operands, &operands_) + Finish(waits, &waits_);
}

std::string Printer::Collectives() {
  Table terms("Term", Name("Terms"), "member, contribution");
  for (const runtime::Term& term : program_.terms)
    terms.Row({Number(term.member), Number(term.contribution)});
  Table collectives("Collective", Name("Collectives"),
                    "kind, element type, communicator, elements, terms (first, count), contributions, name, "
                    "fold");
  for (const runtime::Collective& c : program_.collectives) {
    collectives.Row({CollectiveKindText(c.kind), ElementTypeText(c.type), Number(c.communicator),
                     Number(c.elements), Number(c.first_term), Number(c.term_count), Number(c.contributions),
                     StringLiteral(c.name), FoldKindText(c.fold)});
  }
  Table peer_roles("uint32_t", Name("PeerRoles"), "the role in each peer slot");
  peer_roles.Numbers(Indices(program_.peer_roles));
  Table communicators("uint32_t", Name("CommunicatorSizes"), "members of each communicator slot");
  communicators.Numbers(Indices(program_.communicator_sizes));
  return Finish(terms, &terms_) + Finish(collectives, &collectives_) + Finish(peer_roles, &peer_roles_) +
         Finish(communicators, &communicators_);
}

std::string Printer::Whole(bool outline) {
  std::string text = fmt::format("// clang-format off\nconstexpr RankProgram {} = {{\n", Name("Program"));
  auto row = [&](const std::string& value, const char* what) {
    text += fmt::format("    {},  // {}\n", value, what);
  };
  row(StringLiteral(program_.name), "name");
  row(ranks_, "ranks");
  row(bodies_, "bodies");
  row(calls_, "calls: names only");
  row("{}", "call operands: none, the bodies are functions");
  row("{}", "call integers: none");
  row("{}", "call scalars: none");
  row(buffers_, "buffers");
  row(parameters_, "parameters");
  row(streams_, "streams");
  row(tasks_, "tasks");
  row(operands_, "task operands");
  row(waits_, "waits");
  row(collectives_, "collectives");
  row(terms_, "terms");
  row(peer_roles_, "peer roles");
  row(communicators_, "communicator sizes");
  row(outline ? "kNone" : Index(program_.loss_scale), "buffer of the loss scale");
  row(outline ? "kNone" : Index(program_.loss), "buffer of the loss");
  row(Number(program_.arena_bytes), "arena bytes");
  row(Number(program_.static_bytes), "static bytes");
  row(Number(program_.live_bytes), "largest live set");
  row(Number(program_.host_bytes), "host bytes");
  return text + "};\n// clang-format on\n";
}

}  // namespace

std::string ProgramText(const runtime::RankProgram& program, const std::string& prefix,
                        const std::vector<std::string>& functions, std::span<const char* const> strings) {
  Printer printer(program, prefix);
  std::string text = printer.Ranks(true);
  text += printer.Bodies(functions);
  text += printer.Memory();
  text += printer.Streams();
  text += printer.Tasks(strings);
  text += printer.Collectives();
  return text + printer.Whole(false);
}

std::string OutlineText(const runtime::RankProgram& program, const std::string& prefix) {
  Printer printer(program, prefix);
  return printer.Ranks(false) + printer.Whole(true);
}

}  // namespace piper::codegen
