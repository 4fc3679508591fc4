// What transformers assumes of each family when config.json is silent, and where the families differ.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "rondo/model/config.h"

namespace rondo::model {

struct FamilyTraits {
  Family family;
  std::string_view model_type;
  std::string_view architecture;  // name of the class with the language-model head
  std::uint32_t kv_heads;         // when the key is absent; 0: as many as query heads
  std::uint32_t head_dim;         // when the key is absent; 0: hidden_size / num_attention_heads
  std::uint32_t max_positions;
  std::optional<std::int32_t> bos;
  std::optional<std::int32_t> eos;
  bool qkv_bias_always;       // Qwen2's q, k and v have biases whatever the file says
  bool reads_attention_bias;  // `attention_bias` means something to this family
  bool reads_mlp_bias;
  bool windows_by_layer;  // use_sliding_window, max_window_layers, layer_types
};

std::span<const FamilyTraits> all_families();
const FamilyTraits& traits_of(Family family);
/// Null when the family is not supported.
const FamilyTraits* find_family(std::string_view model_type);
/// "llama, mistral, ...", for messages.
std::string family_names();

std::string_view weight_type_name(WeightType type);  // float32, bfloat16, float16
std::string_view activation_name(Activation activation);
std::string_view rope_kind_name(RopeKind kind);

}  // namespace rondo::model
