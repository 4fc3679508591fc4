// A small random model of an architecture, such as GGUF's readers can express.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "rondo/model/config.h"
#include "rondo/model/init.h"
#include "rondo/model/safetensors.h"

namespace rondo::gguf {

struct Model {
  std::filesystem::path folder;
  model::ModelConfig config;
  model::TensorFiles files;
};

/// With so many layers that each kind is there.
inline model::InitOptions options_of(const std::string& arch, std::uint32_t hidden, std::uint32_t intermediate) {
  model::InitOptions options;
  options.arch = arch;
  options.hidden_size = hidden;
  options.intermediate_size = intermediate;
  options.moe_intermediate_size = intermediate;
  options.tie_word_embeddings = arch == "qwen2" || arch.starts_with("gemma");
  options.num_hidden_layers = arch == "gemma3_text" ? 7 : arch == "olmo3" || arch == "smollm3" ? 5 : 2;
  if (arch == "olmoe" || arch == "dots1") options.num_key_value_heads = options.num_attention_heads;
  if (arch.starts_with("qwen3_5") || arch == "qwen3_next") options.num_hidden_layers = 4;
  return options;
}

inline std::vector<float> values_of(const model::TensorFiles& files, const std::string& name) {
  const model::TensorView* view = files.find(name);
  EXPECT_NE(view, nullptr) << name;
  std::vector<float> values(view == nullptr ? 0 : view->elements());
  if (view != nullptr) model::TensorFiles::read_as_float32(*view, values);
  return values;
}

}  // namespace rondo::gguf
