// The patterns are those of the published tokenizer.json files that readers of GGUF imitate under these names.
#include "cuts.h"

#include <array>
#include <vector>

namespace rondo::gguf {
namespace {

using Json = nlohmann::ordered_json;

enum class Way { kWords, kDigitsAndWords, kLlama3, kQwen2, kTekken, kDeepseekLlm, kDeepseekCoder, kDeepseekV3 };

struct Named {
  std::string_view name;
  Way way;
};

/// The first name of each way is the one that this program writes.
constexpr std::array<Named, 26> kNames = {{{"gpt-2", Way::kWords},
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
                                           {"pixtral", Way::kLlama3},
                                           {"dbrx", Way::kLlama3},
                                           {"smaug-bpe", Way::kLlama3},
                                           {"qwen2", Way::kQwen2},
                                           {"deepseek-r1-qwen", Way::kQwen2},
                                           {"stablelm2", Way::kQwen2},
                                           {"megrez", Way::kQwen2},
                                           {"tekken", Way::kTekken},
                                           {"deepseek-llm", Way::kDeepseekLlm},
                                           {"deepseek-coder", Way::kDeepseekCoder},
                                           {"deepseek-v3", Way::kDeepseekV3}}};

/// Letters with case of Unicode 12, as the published file lists them.
constexpr std::string_view kCasedLetters =
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-"
    "ὗὙὛὝὟ-"
    "ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴ"
    "ῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-"
    "𐓻𐲀-"
    "𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃";
constexpr std::string_view kEastAsian = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";

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
    case Way::kTekken:
      return sequence({split(kTekkenPattern), byte_level(false)});
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
  }
  return nullptr;
}

}  // namespace

Cut cut_of(std::string_view name) {
  for (const Named& named : kNames) {
    if (named.name != name) continue;
    const bool llama3 = named.way == Way::kLlama3 && name != "dbrx" && name != "smaug-bpe";
    const bool whole = llama3 || named.way == Way::kTekken;
    return {pre_tokenizer(named.way), named.way == Way::kQwen2, whole, whole};
  }
  return {};
}

std::string cut_names() {
  std::string names;
  for (const Named& named : kNames) names += (names.empty() ? "" : ", ") + std::string(named.name);
  return names;
}

}  // namespace rondo::gguf
