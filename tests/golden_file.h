// Reads the safetensors files under tests/golden/: what pytorch_goldens.py wrote.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace piper::ir {

struct GoldenTensor {
  std::string dtype;  // "F64" or "I32"
  std::vector<int64_t> shape;
  std::vector<double> values;
};

// All tensors by name; fails the test on a malformed file.
inline std::map<std::string, GoldenTensor> ReadGolden(const std::string& path) {
  std::map<std::string, GoldenTensor> tensors;
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  uint64_t header_bytes = 0;
  if (bytes.size() > 8) std::memcpy(&header_bytes, bytes.data(), 8);
  if (bytes.size() <= 8 || header_bytes > bytes.size() - 8) {
    ADD_FAILURE() << "cannot read " << path;
    return tensors;
  }
  nlohmann::json header = nlohmann::json::parse(bytes.substr(8, header_bytes));
  const char* data = bytes.data() + 8 + header_bytes;
  for (const auto& [name, entry] : header.items()) {
    GoldenTensor tensor;
    tensor.dtype = entry.at("dtype").get<std::string>();
    tensor.shape = entry.at("shape").get<std::vector<int64_t>>();
    auto begin = entry.at("data_offsets").at(0).get<size_t>(),
         end = entry.at("data_offsets").at(1).get<size_t>();
    size_t size = tensor.dtype == "F64" ? 8 : 4;
    EXPECT_LE(8 + header_bytes + end, bytes.size()) << name;
    for (size_t at = begin; at + size <= end; at += size) {
      if (size == 8) {
        double value;
        std::memcpy(&value, data + at, 8);
        tensor.values.push_back(value);
      } else {
        int32_t value;
        std::memcpy(&value, data + at, 4);
        tensor.values.push_back(value);
      }
    }
    tensors[name] = std::move(tensor);
  }
  return tensors;
}

}  // namespace piper::ir
