// `piper export csv FILE`: the orders of a plan as PyTorch's pipelining reads them. `piper export dot FILE`:
// its graphs for Graphviz. `piper export order FILE`: its orders as lines of Piper.
#include <fmt/format.h>

#include <boost/program_options/value_semantic.hpp>
#include <cstdio>

#include "ir/schedule_csv/communication.h"
#include "ir/schedule_csv/from_dag.h"
#include "ir/schedule_csv/spacing.h"
#include "ir/schedule_csv/to_piper.h"
#include "ir/schedule_csv/unshard.h"
#include "tools/commands.h"
#include "tools/exit_codes.h"
#include "tools/files.h"
#include "tools/graph_dot.h"
#include "tools/known_schedule.h"
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
      ("unshard", "with --comms: as if every stage were sharded: its UNSHARD, RESHARD and REDUCE_GRAD")
      ("active-stages", options::value<unsigned>()->value_name("N"),
       "with UNSHARD: the most stages of a rank that are gathered at a time (default: 3, as in PyTorch)")
      ("lowered", "all that PyTorch's runtime makes of a schedule: --comms --waits --unshard")
      ("idle", options::value<std::string>()->value_name("CELLS"),
       "empty cells, without --comms: ticks (default), where a rank waits if every step takes one time step; none; "
       "pytorch, as PyTorch's class of this schedule lists them");
  // clang-format on
  DeclareCommonOptions(shown);
}

// What --comms and its kind ask for; an error is a text.
struct CsvForm {
  bool comms = false, unshard = false;
  csv::Communication communication;
  std::string idle = "ticks", error;
};

CsvForm FormOf(const options::variables_map& values) {
  CsvForm form;
  const bool lowered = values.count("lowered") != 0;
  form.comms = lowered || values.count("comms") != 0;
  form.unshard = lowered || values.count("unshard") != 0;
  form.communication.waits = lowered || values.count("waits") != 0;
  if (form.communication.waits && !form.comms) form.error = "--waits goes with --comms";
  if (form.unshard && !form.comms) form.error = "--unshard goes with --comms";
  if (form.unshard) form.communication.active_stages = csv::kActiveStages;
  if (values.count("active-stages") != 0) {
    form.communication.active_stages = values["active-stages"].as<unsigned>();
    if (form.communication.active_stages == 0) form.error = "--active-stages 0: expected 1 or more";
    if (!form.unshard) form.error = "--active-stages goes with --unshard or --lowered";
  }
  if (values.count("idle") != 0) {
    form.idle = values["idle"].as<std::string>();
    if (form.idle != "ticks" && form.idle != "none" && form.idle != "pytorch")
      form.error = fmt::format("--idle {}: expected ticks, none or pytorch", form.idle);
    if (form.comms) form.error = "--idle goes without --comms: rows with messages have no empty cells";
  }
  return form;
}

int RunCsv(const options::variables_map& values) {
  Session session(values);
  if (!session.usage_error().empty()) return Fail(kExitUsage, session.usage_error());
  CsvForm form = FormOf(values);
  if (!form.error.empty()) return Fail(kExitUsage, form.error);
  std::string text;
  if (std::optional<ir::Program> program = session.Load()) {
    if (std::optional<ir::Plan> plan = session.Plan(*program)) {
      if (std::optional<csv::Export> exported = csv::FromDag(plan->dag, *program, session.diag())) {
        if (form.comms) {
          form.communication.reduced = exported->reduced;
          if (form.unshard) {
            form.communication.reduced.assign(exported->reduced.size(), true);
            if (const size_t least = csv::LargestStep(exported->table);
                form.communication.active_stages < least) {
              return Fail(kExitUsage, fmt::format("--active-stages {}: a step of two stages needs {}",
                                                  form.communication.active_stages, least));
            }
          }
          text =
              csv::TableText(csv::WithCommunication(exported->table, exported->extent, form.communication));
        } else {
          const csv::Spacing spacing = form.idle == "none"    ? csv::Spacing::kNone
                                       : form.idle == "ticks" ? csv::Spacing::kTicks
                                                              : SpacingOf(exported->table, exported->extent);
          text = csv::TableText(csv::WithSpacing(exported->table, exported->extent, spacing));
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
