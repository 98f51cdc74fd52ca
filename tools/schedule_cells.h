// The steps of a simulated schedule as the cells of a picture: all that a rank does in a row for one stage,
// pass and microbatch is one cell, however many regions the stage has. The terminal's picture (timeline.h)
// and the SVG (schedule_svg.h) draw these.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/cost/simulator.h"
#include "ir/dag/stage_copies.h"
#include "runtime/program.h"

namespace piper::tools {

// One row of a picture: a role's representative or a single rank.
struct TimelineRow {
  std::string label;  // "rank 3", "rank 0, 4", "rank 0, 8, ..": ranks that do the same
  const runtime::RankProgram* program = nullptr;
  std::vector<ir::TaskTiming> timings;  // a task
};

// Rows in rank order. `expanded`: the result has one timeline a rank.
std::vector<TimelineRow> TimelineRows(const runtime::Job& job, const ir::SimulationResult& result,
                                      bool expanded);

enum class CellPass : uint8_t { kForward, kBackward, kBackwardInput, kBackwardWeight, kRecompute, kUpdate };
constexpr int kCellPasses = 6;
char CellLetter(CellPass pass);                // F B I W R U, as in the CSV of schedules
std::string_view CellPassText(CellPass pass);  // "forward", "backward, inputs"

struct Cell {
  ir::Picoseconds start = 0, end = 0;
  CellPass pass = CellPass::kForward;
  int32_t microbatch = -1;  // -1: an update
  int64_t stage = -1;
  uint32_t copy = 0;   // of the stage
  uint32_t chunk = 0;  // which of the rank's stage copies, by (copy, stage)
  // Where several things run at once: compute streams, and within one the parts of a fused step.
  uint32_t lane = 0, part = 0, parts = 1;
  friend bool operator==(const Cell&, const Cell&) = default;
};

// A transfer or collective, for pictures that show them.
struct Communication {
  ir::Picoseconds start = 0, end = 0;
  enum class Kind : uint8_t { kSend, kReceive, kCollective } kind = Kind::kSend;
  const char* name = "";
};

struct CellRow {
  std::string label;
  std::vector<Cell> cells;  // stream by stream, each in order; the parts of a fused step stand together
  std::vector<Communication> communication;
  uint32_t lanes = 1, chunks = 1;
  std::vector<std::string> lane_names;  // the streams
};

// `stages` names the stage copies by runtime::Task::key; an empty one: the keys are the stages. A stage that
// has only one of BI and BW (nothing to learn in it, or nothing before it) has its whole backward in that:
// kBackward.
CellRow MakeCells(const TimelineRow& row, std::span<const ir::StageCopy> stages,
                  std::span<const char* const> strings);

}  // namespace piper::tools
