// The patterns are those of the published tokenizer.json files that readers of GGUF imitate under these names.
#include "cuts.h"

#include <algorithm>
#include <array>
#include <vector>

namespace rondo::gguf {
namespace {

using Json = nlohmann::ordered_json;

enum class Way {
  kWords,
  kDigitsAndWords,
  kLlama3,
  kQwen2,
  kQwen35,
  kTekken,
  kGpt4o,
  kDeepseekLlm,
  kDeepseekCoder,
  kDeepseekV3,
  kYoutu,
  kKimi
};

struct Named {
  std::string_view name;
  Way way;
};

/// The first name of each way is the one that this program writes.
constexpr std::array<Named, 35> kNames = {{{"gpt-2", Way::kWords},
                                           {"phi-2", Way::kWords},
                                           {"mpt", Way::kWords},
                                           {"olmo", Way::kWords},
                                           {"roberta-bpe", Way::kWords},
                                           {"smollm", Way::kDigitsAndWords},
                                           {"starcoder", Way::kDigitsAndWords},
                                           {"refact", Way::kDigitsAndWords},
                                           {"command-r", Way::kDigitsAndWords},
                                           {"codeshell", Way::kDigitsAndWords},
                                           {"exaone", Way::kDigitsAndWords},
                                           {"llama-bpe", Way::kLlama3},
                                           {"llama3", Way::kLlama3},
                                           {"llama-v3", Way::kLlama3},
                                           {"falcon3", Way::kLlama3},
                                           {"falcon-h1", Way::kLlama3},
                                           {"lfm2", Way::kLlama3},
                                           {"pixtral", Way::kLlama3},
                                           {"dbrx", Way::kLlama3},
                                           {"smaug-bpe", Way::kLlama3},
                                           {"qwen2", Way::kQwen2},
                                           {"deepseek-r1-qwen", Way::kQwen2},
                                           {"stablelm2", Way::kQwen2},
                                           {"megrez", Way::kQwen2},
                                           {"qwen35", Way::kQwen35},
                                           {"tekken", Way::kTekken},
                                           {"gpt-4o", Way::kGpt4o},
                                           {"deepseek-llm", Way::kDeepseekLlm},
                                           {"deepseek-coder", Way::kDeepseekCoder},
                                           {"deepseek-v3", Way::kDeepseekV3},
                                           {"joyai-llm", Way::kDeepseekV3},
                                           {"glm4", Way::kLlama3},
                                           {"chatglm-bpe", Way::kLlama3},
                                           {"youtu", Way::kYoutu},
                                           {"kimi-k2", Way::kKimi}}};

/// Letters with case, as the published file lists them; by their numbers, since editors compose some of them.
constexpr std::string_view kCasedLetters =
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943";
constexpr std::string_view kEastAsian = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";

/// Letters of one script, punctuation, and letters of others.
constexpr std::string_view kYoutuLetters =
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f"
    "\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
/// Digits one by one, and all else as gpt-4o has it.
constexpr std::string_view kYoutuPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
/// Chinese characters by themselves. Published with sets of characters that have these taken out, which not every
/// library of regular expressions reads: looking ahead says the same.
constexpr std::string_view kKimiPattern =
    R"(\p{Han}+|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json split(std::string_view pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

Json digits() { return {{"type", "Digits"}, {"individual_digits", true}}; }

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json sequence(const std::vector<Json>& steps) { return {{"type", "Sequence"}, {"pretokenizers", steps}}; }

Json pre_tokenizer(Way way) {
  switch (way) {
    case Way::kWords:
      return byte_level(true);
    case Way::kDigitsAndWords:
      return sequence({digits(), byte_level(true)});
    case Way::kLlama3:
      return sequence({split(kLlama3Pattern), byte_level(false)});
    case Way::kQwen2:
      return sequence({split(kQwen2Pattern), byte_level(false)});
    case Way::kQwen35:
      return sequence({split(kQwen35Pattern), byte_level(false)});
    case Way::kTekken:
      return sequence({split(kTekkenPattern), byte_level(false)});
    case Way::kGpt4o:
      return sequence({split(kGpt4oPattern), byte_level(false)});
    case Way::kDeepseekLlm:
      return sequence({split("[\r\n]"), split("\\s?[" + std::string(kCasedLetters) + "]+"),
                       split("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"), split("\\s+$"),
                       split(kEastAsian), digits(), byte_level(false)});
    case Way::kDeepseekCoder:
      return sequence({split("[\r\n]"), split("\\s?\\p{L}+"), split("\\s?\\p{P}+"), split(kEastAsian), digits(),
                       byte_level(false)});
    case Way::kDeepseekV3:
      return sequence(
          {split("\\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
           split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
                 "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
           byte_level(false)});
    case Way::kYoutu:
      return sequence({split(kYoutuLetters), split(kYoutuPattern), byte_level(false)});
    case Way::kKimi:
      return sequence({split(kKimiPattern), byte_level(false)});
  }
  return nullptr;
}

}  // namespace

Cut cut_of(std::string_view name) {
  for (const Named& named : kNames) {
    if (named.name != name) continue;
    constexpr std::array<std::string_view, 4> kByMerges = {"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"};
    const bool llama3 = named.way == Way::kLlama3 && std::ranges::count(kByMerges, name) == 0;
    const bool whole = llama3 || named.way == Way::kTekken;
    const bool composes = named.way == Way::kQwen2 || named.way == Way::kQwen35;
    return {pre_tokenizer(named.way), composes, whole || named.way == Way::kYoutu, whole};
  }
  return {};
}

std::string cut_names() {
  std::string names;
  for (const Named& named : kNames) names += (names.empty() ? "" : ", ") + std::string(named.name);
  return names;
}

}  // namespace rondo::gguf
