// The model that mutated schedules train: a chain of units, one region each. A unit is tanh(x * w), with
// skips plus half of what stands two units before its input; the last one ends in the loss. The first and the
// last share a parameter. Everything that judges a mutant starts from this definition: the program's text,
// the brute-force model, and the hashes that values must have.
#pragma once

#include <string>
#include <vector>

namespace piper::mutants {

struct Unit {
  std::string region;                   // the last part of its region's name: "ramp", "unit3"
  std::vector<int> inputs;              // units, ascending; none: the batch's field x
  std::vector<std::string> parameters;  // in the order of declaration
};

struct Chain {
  int width = 8;
  std::vector<Unit> units;

  int size() const { return static_cast<int>(units.size()); }
  // Units that read unit `u`, ascending.
  std::vector<int> ReadersOf(int u) const {
    std::vector<int> readers;
    for (int k = 0; k < size(); ++k) {
      for (int input : units[k].inputs) {
        if (input == u) readers.push_back(k);
      }
    }
    return readers;
  }
};

// `units` >= 2, the ramp included. The ramp reads only data and has no BI; stage 0 holds it and a unit that
// has.
inline Chain MakeChain(int units, bool skips) {
  Chain chain;
  for (int u = 0; u < units; ++u) {
    Unit unit;
    unit.region = u == 0 ? "ramp" : "unit" + std::to_string(u - 1);
    if (skips && u >= 3) unit.inputs.push_back(u - 3);
    if (u >= 1) unit.inputs.push_back(u - 1);
    if (u == 0 || u + 1 == units) unit.parameters.push_back("shared");
    unit.parameters.push_back("w" + std::to_string(u));
    chain.units.push_back(unit);
  }
  return chain;
}

// The module `Chain` and the model `net`.
inline std::string ModelText(const Chain& chain) {
  const std::string width = std::to_string(chain.width);
  std::string text = "module Chain(width: dim) {\n  param shared: [width] = normal(0.5)\n";
  for (int u = 0; u < chain.size(); ++u) {
    text += "  param w" + std::to_string(u) + ": [width] = normal(0.5)\n";
  }
  text += "  forward(x: [batch, width = " + width + "], y: [batch, width = " + width + "]) -> loss {\n";
  for (int u = 0; u < chain.size(); ++u) {
    const Unit& unit = chain.units[u];
    const bool last = u + 1 == chain.size();
    std::string value =
        (unit.inputs.empty() ? "x" : "h" + std::to_string(unit.inputs.back())) + " * w" + std::to_string(u);
    if (unit.parameters.size() > 1) value += " * shared";
    if (!last) value = "tanh(" + value + ")";
    if (unit.inputs.size() > 1) value += " + 0.5 * h" + std::to_string(unit.inputs[0]);
    const std::string tag = u == 0 ? "ramp" : "unit";
    text += last ? "    return tag unit { mse(" + value + ", y) }\n"
                 : "    let h" + std::to_string(u) + " = tag " + tag + " { " + value + " }\n";
  }
  return text + "  }\n}\nmodel net = Chain(width = " + width + ")\n";
}

}  // namespace piper::mutants
