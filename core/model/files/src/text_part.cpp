// See text_part.h.
#include "text_part.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "rondo/base/status.h"

namespace rondo::model {
namespace {

/// A text part that is built as the models of a family, and has defaults of its own: those of transformers 5.23.
struct BuiltAs {
  std::string_view whole;  // model_type
  std::string_view text;   // likewise
  const char* defaults;
  bool flat;  // published files have its keys among those of the whole, and call the turn of its channels mrope
  std::array<std::uint32_t, 3> pairs;  // mrope_section
};
constexpr const char* kQwen2Vl = R"({"vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-5, "rope_theta": 1e6, "max_window_layers": 80, "bos_token_id": 151643,
    "eos_token_id": 151645})";
constexpr const char* kQwen3Vl = R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128,
    "max_position_embeddings": 128000, "rms_norm_eps": 1e-6, "rope_theta": 5e5})";
constexpr const char* kQwen3VlMoe = R"({"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632,
    "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16, "max_position_embeddings": 128000,
    "rms_norm_eps": 1e-6, "rope_theta": 5e5, "num_local_experts": 60, "num_experts_per_tok": 4,
    "moe_intermediate_size": 1408})";
constexpr std::array kBuiltAs = {BuiltAs{"qwen2_vl", "qwen2", kQwen2Vl, true, {16, 24, 24}},
                                 BuiltAs{"qwen2_5_vl", "qwen2", kQwen2Vl, true, {16, 24, 24}},
                                 BuiltAs{"qwen3_vl", "qwen3", kQwen3Vl, false, {24, 20, 20}},
                                 BuiltAs{"qwen3_vl_moe", "qwen3_moe", kQwen3VlMoe, false, {24, 20, 20}}};

/// Of text all three coordinates of a token are its position, whatever part of the channels each turns.
void turn_by_positions(Json& text) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto settings = text.find(key);
    if (settings == text.end() || !settings->is_object()) continue;
    if (settings->value("rope_type", settings->value("type", Json())) != "mrope") continue;
    settings->erase("type");
    (*settings)["rope_type"] = "default";
  }
}

/// To where a text part that is there alone has it, too: within rotary settings it would make others than transformers
/// take that for the whole.
void move_picture_turns(const BuiltAs& kind, const Json& document, Json& text) {
  text[kPicturePairs] = kind.pairs;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto settings = text.find(key);
    if (settings == text.end() || !settings->is_object()) continue;
    if (const Json given = settings->value(kPicturePairs, Json()); !given.is_null()) text[kPicturePairs] = given;
  }
  if (kind.flat) return;
  constexpr std::size_t kUsual = 3;
  const Json pictures = document.value("vision_config", Json());
  const Json blocks = pictures.is_object() ? pictures.value("deepstack_visual_indexes", Json()) : Json();
  text[kDeepBlocks] = blocks.is_array() ? blocks.size() : kUsual;
}

Json built_as(const BuiltAs& kind, const Json& document, Json part) {
  Json text = Json::parse(kind.defaults);
  if (kind.flat && !document.contains("text_config")) part = document;
  text.update(part);
  text["model_type"] = kind.text;
  move_picture_turns(kind, document, text);
  if (kind.flat) {
    turn_by_positions(text);
  } else {  // no layer of it slides
    text.erase("use_sliding_window");
    text.erase("layer_types");
    if (kind.text == "qwen3_moe") text["norm_topk_prob"] = true;  // whatever it says
  }
  text["tie_word_embeddings"] = kind.flat && part.value("tie_word_embeddings", Json()) == true;
  return text;
}

}  // namespace

std::optional<Json> text_part_of(const Json& document) {
  const Json type = document.value("model_type", Json());
  const bool mistral = type == "mistral3";
  const bool qwen = type == "qwen3_5" || type == "qwen3_5_moe";
  const auto* kind = std::ranges::find_if(kBuiltAs, [&](const BuiltAs& one) { return type == one.whole; });
  const bool built = kind != kBuiltAs.end();
  const bool gemma = type == "gemma3" || type == "gemma4" || type == "gemma4_unified";
  if (!mistral && !qwen && !built && !gemma) return std::nullopt;
  Json text = document.value("text_config", Json::object());
  if (!text.is_object()) return std::nullopt;
  if (built) {
    text = built_as(*kind, document, std::move(text));
  } else {
    if (!mistral) text["model_type"] = type.get<std::string>() + "_text";
    // What stands inside means nothing to the class of the whole, and a Mistral's ties them by default; published files
    // of it have two, see has_own_head().
    text["tie_word_embeddings"] = !qwen;
  }
  const bool tied_inside = built && text["tie_word_embeddings"] == true;
  for (const char* key : {"eos_token_id", "bos_token_id", "pad_token_id", "tie_word_embeddings", "torch_dtype", "dtype",
                          "quantization_config", "transformers_weights"}) {
    if (document.contains(key) && !document[key].is_null()) text[key] = document[key];
  }
  if (tied_inside) text["tie_word_embeddings"] = true;  // as older versions said it, whatever the whole says
  return text;
}

void parse_picture_turns(Fields& fields, ModelConfig& config) {
  const bool may_have =
      config.family == Family::kQwen2 || config.family == Family::kQwen3 || config.family == Family::kQwen3Moe;
  if (!may_have || !fields.has(kPicturePairs)) return;
  constexpr std::uint32_t kMost = 1U << 16U;
  PictureTurns turns;
  const Json& pairs = fields.at(kPicturePairs);
  const auto fits = [](const Json& one) { return one.is_number_unsigned() && one <= kMost; };
  if (!pairs.is_array() || pairs.size() != turns.pairs.size() || !std::ranges::all_of(pairs, fits)) {
    fields.expected(kPicturePairs, fmt::format("{} numbers of pairs of channels", turns.pairs.size()));
    return;
  }
  for (std::size_t i = 0; i < turns.pairs.size(); ++i) turns.pairs[i] = pairs[i].get<std::uint32_t>();
  if (config.family != Family::kQwen2) {
    turns.deep_blocks = fields.integer(kDeepBlocks, 0, config.text_part ? kMaxLayers : config.num_layers, 0);
  }
  config.picture_turns = turns;
}

void add_picture_turns(const ModelConfig& config, OrderedJson& out) {
  if (!config.picture_turns) return;
  out[kPicturePairs] = config.picture_turns->pairs;
  if (config.family != Family::kQwen2) out[kDeepBlocks] = config.picture_turns->deep_blocks;
}

}  // namespace rondo::model
