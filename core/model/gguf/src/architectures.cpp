// See architectures.h.
#include "architectures.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <vector>

namespace rondo::gguf {
namespace {

using model::Family;

/// One of each architecture; what else a file says may make it another that shares the name.
constexpr std::array kFamilies = {
    Family::kLlama,     Family::kArcee,      Family::kMinistral3, Family::kQwen2,      Family::kQwen3,
    Family::kSmolLm3,   Family::kGranite,    Family::kOlmo2,      Family::kGemma,      Family::kGemma2,
    Family::kGemma3,    Family::kGemma4,     Family::kQwen3Moe,   Family::kOlmoe,      Family::kGptOss,
    Family::kPhi3,      Family::kHunYuan,    Family::kExaone4,    Family::kSeedOss,    Family::kErnie45,
    Family::kGlm,       Family::kGlm4,       Family::kQwen2Moe,   Family::kGraniteMoe, Family::kLfm2,
    Family::kGlm4Moe,   Family::kErnie45Moe, Family::kLfm2Moe,    Family::kQwen35,     Family::kQwen35Moe,
    Family::kQwen3Next, Family::kDeepseekV3, Family::kNemotron,   Family::kFalconH1,   Family::kNemotronH};

/// What more a name says than which family it is.
std::vector<model::ModelConfig> known_architectures() {
  std::vector<model::ModelConfig> known;
  for (const Family family : kFamilies) known.emplace_back().family = family;
  for (const Family family : {Family::kQwen2, Family::kQwen3, Family::kQwen3Moe}) {
    model::ModelConfig& config = known.emplace_back();
    config.family = family;
    config.picture_turns.emplace();
  }
  model::ModelConfig& hybrid = known.emplace_back();
  hybrid.family = Family::kGraniteMoeHybrid;
  hybrid.state_space.emplace();
  model::ModelConfig& mixture = known.emplace_back();
  mixture.family = Family::kNemotronH;
  mixture.experts.emplace();
  return known;
}

}  // namespace

std::string architecture_name(const model::ModelConfig& config) {
  const bool sees = config.picture_turns.has_value();
  switch (config.family) {
    case Family::kLlama:
    case Family::kInternLm3:
    case Family::kIQuestCoder:
    case Family::kHelium:
    case Family::kMistral:
    case Family::kMixtral:
      return "llama";
    case Family::kGlm:
      return "chatglm";
    case Family::kArcee:
      return "arcee";
    case Family::kLfm2:
      return "lfm2";
    case Family::kLfm2Moe:
      return "lfm2moe";
    case Family::kMinistral3:
      return "mistral3";
    case Family::kQwen2:
      return sees ? "qwen2vl" : "qwen2";
    case Family::kQwen2Moe:
      return "qwen2moe";
    case Family::kQwen3:
      return sees ? "qwen3vl" : "qwen3";
    case Family::kExaone4:
      return "exaone4";
    case Family::kErnie45:
      return "ernie4_5";
    case Family::kGlm4:
      return "glm4";
    case Family::kGlm4Moe:
      return "glm4moe";
    case Family::kErnie45Moe:
      return "ernie4_5-moe";
    case Family::kSeedOss:
      return "seed_oss";
    case Family::kHunYuan:
      return "hunyuan-dense";
    case Family::kQwen3Moe:
      return sees ? "qwen3vlmoe" : "qwen3moe";
    case Family::kSmolLm3:
      return "smollm3";
    case Family::kGraniteMoeHybrid:
      return config.state_space ? "granitehybrid" : "granite";
    case Family::kBamba:
      return "granitehybrid";
    case Family::kFalconH1:
      return "falcon-h1";
    case Family::kNemotronH:
      return config.experts ? "nemotron_h_moe" : "nemotron_h";
    case Family::kGranite:
      return "granite";
    case Family::kGraniteMoe:
    case Family::kGraniteMoeShared:
      return "granitemoe";
    case Family::kDots1:
      return "dots1";
    case Family::kHunYuanMoe:
      return "hunyuan-moe";
    case Family::kOlmo2:
    case Family::kOlmo3:
      return "olmo2";
    case Family::kOlmoe:
      return "olmoe";
    case Family::kGemma:
      return "gemma";
    case Family::kGemma2:
      return "gemma2";
    case Family::kGemma3:
      return "gemma3";
    case Family::kGemma4:
      return "gemma4";
    case Family::kGptOss:
      return "gpt-oss";
    case Family::kPhi3:
      return "phi3";
    case Family::kQwen35:
      return "qwen35";
    case Family::kQwen35Moe:
      return "qwen35moe";
    case Family::kQwen3Next:
      return "qwen3next";
    case Family::kGlm4MoeLite:
    case Family::kDeepseekV3:
    case Family::kDeepseekV2:
    case Family::kYoutu:
      return "deepseek2";
    case Family::kNemotron:
      return "nemotron";
    default:
      return "";  // check_expressible() refuses it
  }
}

std::optional<model::ModelConfig> config_of_architecture(std::string_view name) {
  for (const model::ModelConfig& config : known_architectures()) {
    if (architecture_name(config) == name) return config;
  }
  return std::nullopt;
}

std::string architectures_read() {
  std::vector<std::string> names;
  for (const model::ModelConfig& config : known_architectures()) names.push_back(architecture_name(config));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace rondo::gguf
