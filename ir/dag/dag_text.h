// The text form of a training DAG: for `--emit=dag`, for goldens, and for tests that edit a plan and expect a
// refusal. It prints and parses back to an equal Dag. Statements, one a line:
//
//   dag devices 2 replicas 1 microbatches 4 samples 8
//   split mb 4
//   group "pp[0]" 0
//   node "F layer0" compute pass F region 0 on "pp[0]" stream compute mb 0 4 tags { stage 0 layer 0 } flops
//   1024 edge "F layer0" -> "send layer0 -> layer1" after "B layer0" 3 -> "dp.reduce w" 0 (temporal, between
//   nodes) order "pp[0]" compute {
//     "F layer0" 0
//     repeat 3 stride 1 { "F layer0" 1; [ "BI layer0" 0; "BW layer0" 0 ] }
//     "update w"
//   }
//   expression replicas 1 microbatches 4
//
// Names are quoted; nodes refer to each other by name. In an order, [ .. ] is one atomic node and `repeat n
// stride k` lists its items n times with the microbatch k higher each time. Origins are printed when sources
// are given.
#pragma once

#include <optional>
#include <string>

#include "ir/dag/dag.h"
#include "ir/support/diagnostics.h"
#include "ir/support/source.h"

namespace piper::ir {

// With `sources`, every origin is printed (file name and byte range); without, none is.
std::string DagToText(const Dag& dag, const SourceManager* sources = nullptr);

// Parses a file of diag.sources() and verifies the result (verifier.h). Nothing after a located kBadIrText.
// Origins in files that are not among the sources point nowhere.
std::optional<Dag> ParseDag(FileId file, DiagnosticEngine& diag);

}  // namespace piper::ir
