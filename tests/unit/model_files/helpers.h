// What the tests of this room share: folders and refusals, numbers of tensors, and safetensors bytes put
// together by hand.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "files.h"
#include "rondo/model/safetensors.h"

namespace rondo::model {

using test::entries_in;
using test::expect_refused;
using test::fresh_folder;
using test::put;

inline std::vector<float> numbers_of(const TensorFiles& files, const std::string& name) {
  const TensorView* view = files.find(name);
  EXPECT_NE(view, nullptr) << name;
  if (view == nullptr) return {};
  std::vector<float> values(view->elements());
  TensorFiles::read_as_float32(*view, values);
  return values;
}

/// Size field, header as it is, data.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string size(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) size[i] = static_cast<char>(header.size() >> (8 * i) & 0xffU);
  return size + header + data;
}

}  // namespace rondo::model
