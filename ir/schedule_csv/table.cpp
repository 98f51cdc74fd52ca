#include "ir/schedule_csv/table.h"

namespace piper::ir::schedule_csv {

std::string_view ActionText(Action action) {
  constexpr std::string_view kTexts[kActions] = {
      "F",      "I",           "W",           "B",       "SEND_F",  "RECV_F",      "SEND_B",
      "RECV_B", "WAIT_SEND_F", "WAIT_SEND_B", "UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD",
  };
  return kTexts[static_cast<size_t>(action)];
}

bool IsCompute(Action action) { return action <= Action::kFullBackward; }
bool IsBackward(Action action) { return action > Action::kForward && action <= Action::kFullBackward; }
bool TakesMicrobatch(Action action) { return action < Action::kUnshard; }

std::string StepText(const Step& step) {
  std::string text = std::to_string(step.stage);
  text += ActionText(step.action);
  return step.microbatch < 0 ? text : text + std::to_string(step.microbatch);
}

std::string CellText(const Cell& cell) {
  if (cell.count == 0) return "";
  if (cell.count == 1) return StepText(cell.steps[0]);
  return '(' + StepText(cell.steps[0]) + ';' + StepText(cell.steps[1]) + ")OVERLAP_F_B";
}

std::string TableText(const Table& table) {
  std::string text;
  for (const std::vector<Cell>& row : table.ranks) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += ',';
      text += CellText(row[i]);
    }
    text += '\n';
  }
  return text;
}

}  // namespace piper::ir::schedule_csv
