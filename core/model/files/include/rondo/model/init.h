// A small random model directory, so that everything can be tried at once.
//
// It holds config.json, generation_config.json, model.safetensors, and a byte-level tokenizer: token b is byte b, then
// come <|endoftext|>, <|im_start|>, <|im_end|>, <|pad|>; the chat template is ChatML and <|im_end|> ends an answer.
//
// Weights are N(0, initializer_range), norms one (zero where the norm adds one), biases zero, by a generator without
// state, so that each number depends on the seed, its tensor's name and its index alone:
//   mix(x): x ^= x >> 30; x *= 0xbf58476d1ce4e5b9; x ^= x >> 27; x *= 0x94d049bb133111eb; x ^= x >> 31
//   key = mix(seed + 0x9e3779b97f4a7c15) ^ FNV-1a-64(name)
//   w = mix(key + (index + 1) * 0x9e3779b97f4a7c15), modulo 2^64 (SplitMix64 at position `index`)
//   u = ((w >> 32) + 1) / 2^32, v = (w & 0xffffffff) / 2^32
//   value = initializer_range * sqrt(-2 ln u) * cos(2 pi v), computed in double, rounded to fp32, then to the dtype
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "rondo/model/config.h"

namespace rondo::model {

/// The one place of these defaults (the verb init has them from here). Zero means: derived from the others.
struct InitOptions {
  std::string arch = "llama";
  std::uint32_t hidden_size = 64;
  std::uint32_t intermediate_size = 0;  // 3 * hidden_size
  std::uint32_t num_hidden_layers = 2;
  std::uint32_t num_attention_heads = 4;
  std::uint32_t num_key_value_heads = 0;  // half of the query heads when they are even, else all
  std::uint32_t head_dim = 0;             // hidden_size / num_attention_heads
  std::uint32_t vocab_size = 512;         // at least the tokenizer's size
  std::uint32_t max_position_embeddings = 2048;
  double rope_theta = 10000.0;
  bool tie_word_embeddings = false;
  std::uint32_t num_experts = 8;  // of families that have experts
  std::uint32_t num_experts_per_tok = 2;
  std::uint32_t moe_intermediate_size = 0;  // hidden_size; where it is not intermediate_size
  double initializer_range = 0.02;
  std::uint64_t seed = 42;
  WeightType weight_type = WeightType::kFloat32;
};

/// Tokens of the tokenizer that init_model writes; vocab_size may be larger.
constexpr std::uint32_t kInitTokenizerSize = 260;

/// Makes `output_dir` whole (built beside it, then renamed) or not at all. Errors: InvalidArgument when an option is
/// out of range, or when the folder exists and is not empty or cannot be made; Internal when a file in it cannot be
/// written.
absl::Status init_model(const InitOptions& options, const std::filesystem::path& output_dir);

/// Numbers `first`, `first` + 1, ... of the tensor `name`, by the generator above.
void fill_normal(std::uint64_t seed, std::string_view name, std::uint64_t first, double deviation,
                 std::span<float> out);

}  // namespace rondo::model
