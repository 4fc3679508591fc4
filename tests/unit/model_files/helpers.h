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

/// What a small config.json of the family has to say.
inline nlohmann::json good_config(const std::string& model_type = "llama") {
  nlohmann::json config = {{"model_type", model_type},
                           {"hidden_size", 64},
                           {"intermediate_size", 128},
                           {"num_hidden_layers", 2},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"vocab_size", 300},
                           {"head_dim", 16},
                           {"attention_dropout", 0.0},
                           {"residual_dropout", 0.0},
                           {"hidden_size_per_layer_input", 0}};
  if (model_type == "dots1") config.update({{"moe_intermediate_size", 32}, {"n_shared_experts", 1}});
  if (model_type == "dots1") config.update({{"n_routed_experts", 8}, {"num_experts_per_tok", 2}});
  if (model_type == "granitemoehybrid") config["layer_types"] = {"attention", "attention"};
  if (model_type == "glm4_moe_lite" || model_type == "youtu" || model_type.starts_with("deepseek")) {
    config.update({{"num_key_value_heads", 4}, {"head_dim", 64}, {"num_experts_per_tok", 2}});
  }
  if (model_type == "minicpm3") config.update({{"num_key_value_heads", 4}, {"head_dim", 32}});
  return config;
}

/// Size field, header as it is, data.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string size(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) size[i] = static_cast<char>(header.size() >> (8 * i) & 0xffU);
  return size + header + data;
}

}  // namespace rondo::model
