// `piper export csv FILE`: the orders of a plan as PyTorch's pipelining reads them. `piper export dot FILE`:
// its graphs for Graphviz. `piper export order FILE`: its orders as lines of Piper.
#include <fmt/format.h>

#include <boost/program_options/value_semantic.hpp>
#include <cstdio>

#include "ir/schedule_csv/communication.h"
#include "ir/schedule_csv/from_dag.h"
#include "ir/schedule_csv/to_piper.h"
#include "ir/schedule_csv/unit_time.h"
#include "tools/commands.h"
#include "tools/exit_codes.h"
#include "tools/files.h"
#include "tools/graph_dot.h"
#include "tools/session.h"

namespace piper::tools {
namespace {

namespace csv = ir::schedule_csv;

void DeclareOutput(options::options_description& shown) {
  shown.add_options()("output,o", options::value<std::string>()->value_name("FILE"),
                      "where to write (default: standard output)");
}

void DeclareCsv(options::options_description& shown, options::options_description&) {
  DeclareOutput(shown);
  // clang-format off
  shown.add_options()
      ("comms", "with sends and receives, and a REDUCE_GRAD a stage whose gradients are summed over replicas")
      ("waits", "with --comms: also the WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD of newer PyTorch versions")
      ("no-idle", "leave out the empty cells of time steps in which a rank waits");
  // clang-format on
  DeclareCommonOptions(shown);
}

int RunCsv(const options::variables_map& values) {
  Session session(values);
  if (!session.usage_error().empty()) return Fail(kExitUsage, session.usage_error());
  const bool comms = values.count("comms") != 0, waits = values.count("waits") != 0;
  if (waits && !comms) return Fail(kExitUsage, "--waits goes with --comms");
  std::string text;
  if (std::optional<ir::Program> program = session.Load()) {
    if (std::optional<ir::Plan> plan = session.Plan(*program)) {
      if (std::optional<csv::Export> exported = csv::FromDag(plan->dag, *program, session.diag())) {
        if (comms) {
          text = csv::TableText(
              csv::WithCommunication(exported->table, exported->extent, exported->reduced, waits));
        } else if (values.count("no-idle") != 0) {
          text = csv::TableText(exported->table);
        } else {
          text = csv::TableText(csv::WithIdleCells(exported->table, exported->extent));
        }
      }
    }
  }
  if (const int code = session.Finish(); code != kExitOk) return code;
  return WriteOutput(values, text);
}

void DeclareDot(options::options_description& shown, options::options_description&) {
  DeclareOutput(shown);
  shown.add_options()("graph", options::value<std::string>()->default_value("model")->value_name("GRAPH"),
                      "model: its operations and regions; dag: the training DAG, by ranks and stages");
  DeclareCommonOptions(shown);
}

int RunDot(const options::variables_map& values) {
  Session session(values);
  if (!session.usage_error().empty()) return Fail(kExitUsage, session.usage_error());
  const std::string& graph = values["graph"].as<std::string>();
  if (graph != "model" && graph != "dag") {
    return Fail(kExitUsage, fmt::format("--graph {}: expected model or dag", graph));
  }
  std::optional<std::string> text;
  bool built = false;
  if (std::optional<ir::Program> program = session.Load()) {
    if (graph == "model") {
      built = true;
      text = ModelDot(ir::BuildRegions(program->model));
    } else if (std::optional<ir::Plan> plan = session.Plan(*program)) {
      built = true;
      text = DagDot(plan->dag, *program);
    }
  }
  if (const int code = session.Finish(built ? kExitOk : kExitInput); code != kExitOk) return code;
  if (!text) {
    return Fail(kExitInput,
                fmt::format("the graph has more than {} nodes even when it is folded: nobody could read it\n"
                            "hint: draw it smaller (--set), or read `piperc --emit={}`",
                            kMaxDotNodes, graph));
  }
  return WriteOutput(values, *text);
}

void DeclareOrder(options::options_description& shown, options::options_description&) {
  DeclareOutput(shown);
  DeclareCommonOptions(shown);
}

int RunOrder(const options::variables_map& values) {
  Session session(values);
  if (!session.usage_error().empty()) return Fail(kExitUsage, session.usage_error());
  std::string text;
  if (std::optional<ir::Program> program = session.Load()) {
    if (std::optional<ir::Plan> plan = session.Plan(*program)) {
      if (std::optional<csv::Export> exported = csv::FromDag(plan->dag, *program, session.diag()))
        text = csv::OrdersText(*exported, plan->dag);
    }
  }
  if (const int code = session.Finish(); code != kExitOk) return code;
  return WriteOutput(values, text);
}

}  // namespace

Command ExportOrderCommand() {
  return {"export order", "FILE", "the orders of a plan as `order` lines that can stand in a strategy",
          DeclareOrder, RunOrder};
}

Command ExportDotCommand() {
  return {"export dot", "FILE", "the model graph or the training DAG for Graphviz", DeclareDot, RunDot};
}

Command ExportCsvCommand() {
  return {"export csv", "FILE", "the orders of a plan as PyTorch's pipelining reads them", DeclareCsv,
          RunCsv};
}

}  // namespace piper::tools
