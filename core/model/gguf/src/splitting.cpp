// Recognising pre-tokenizers and normalizers by their settings.
#include "splitting.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "cuts.h"
#include "rondo/base/status.h"

namespace rondo::gguf {
namespace {

using Json = nlohmann::json;

/// Patterns and the names under which readers of GGUF have them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kPatterns = {{{kLlama3Pattern, "llama-bpe"},
                                                                                     {kQwen2Pattern, "qwen2"},
                                                                                     {kQwen35Pattern, "qwen35"},
                                                                                     {kTekkenPattern, "tekken"},
                                                                                     {kGpt4oPattern, "gpt-4o"}}};

std::string word(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_string()) return {};
  return object[key].get<std::string>();
}

bool flag(const Json& object, const char* key, bool fallback) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_boolean()) return fallback;
  return object[key].get<bool>();
}

/// The steps of a pre-tokenizer or normalizer: none, itself, or those of a Sequence.
std::vector<Json> steps_of(const Json& file, const char* part, const char* list) {
  if (!file.contains(part) || file[part].is_null()) return {};
  const Json& whole = file[part];
  if (word(whole, "type") != "Sequence") return {whole};
  if (!whole.contains(list) || !whole[list].is_array()) return {};
  return whole[list].get<std::vector<Json>>();
}

bool is_byte_level(const Json& step, bool use_regex) {
  return word(step, "type") == "ByteLevel" && flag(step, "use_regex", true) == use_regex &&
         !flag(step, "add_prefix_space", true);
}

/// With what a step does where it does not say.
Json spelled_out(const Json& step) {
  const std::string type = word(step, "type");
  if (type == "Digits") return {{"type", type}, {"individual_digits", flag(step, "individual_digits", false)}};
  if (type == "ByteLevel") {
    return {{"type", type},
            {"use_regex", flag(step, "use_regex", true)},
            {"add_prefix_space", flag(step, "add_prefix_space", true)}};
  }
  if (type != "Split" || !step.contains("pattern")) return step;
  return {{"type", type},
          {"pattern", step["pattern"]},
          {"behavior", word(step, "behavior")},
          {"invert", flag(step, "invert", false)}};
}

/// Cuts of several steps, and of one that is not in kPatterns.
constexpr std::array<std::string_view, 5> kStepped = {"deepseek-llm", "deepseek-coder", "deepseek-v3", "youtu",
                                                      "kimi-k2"};

bool has_steps_of(const std::vector<Json>& steps, std::string_view name) {
  const Json own = Json::parse(cut_of(name).pre_tokenizer.dump())["pretokenizers"];
  return std::ranges::equal(steps, own, {}, spelled_out, spelled_out);
}

/// Cuts at blanks. Where the normalizer has left none, as Gemma's has, it cuts nothing.
bool is_cut_at_blanks(const Json& step) {
  return word(step, "type") == "Split" && step.contains("pattern") && word(step["pattern"], "String") == " ";
}

bool is_blank_to_mark(const Json& step) {
  return word(step, "type") == "Replace" && step.contains("pattern") && word(step["pattern"], "String") == " " &&
         word(step, "content") == "\u2581";
}

}  // namespace

absl::StatusOr<std::string> splitting_name(const Json& tokenizer, const std::string& origin) {
  for (const Json& step : steps_of(tokenizer, "normalizer", "normalizers")) {
    // Readers leave the composition of characters to the one who writes the prompt.
    if (word(step, "type") != "NFC") {
      return invalid_input("{}: normalizer: {} has no counterpart in GGUF; expected none or NFC", origin,
                           word(step, "type"));
    }
  }
  const std::vector<Json> steps = steps_of(tokenizer, "pre_tokenizer", "pretokenizers");
  if (steps.size() == 1 && is_byte_level(steps[0], true)) return std::string("gpt-2");
  if (steps.size() == 2 && word(steps[0], "type") == "Digits" && flag(steps[0], "individual_digits", false) &&
      is_byte_level(steps[1], true)) {
    return std::string("smollm");
  }
  const bool splits = steps.size() == 2 && word(steps[0], "type") == "Split" && steps[0].contains("pattern") &&
                      word(steps[0], "behavior") == "Isolated" && !flag(steps[0], "invert", false) &&
                      is_byte_level(steps[1], false);
  if (splits) {
    const std::string pattern = word(steps[0]["pattern"], "Regex");
    // Under the first of the two names readers take a word that is a token for one, whatever the merges say.
    const bool by_merges = !flag(tokenizer["model"], "ignore_merges", false);
    if (pattern == kLlama3Pattern && by_merges) return std::string("dbrx");
    for (const auto& [known, name] : kPatterns) {
      if (pattern == known) return std::string(name);
    }
  }
  const bool whole = flag(tokenizer["model"], "ignore_merges", false);
  for (const std::string_view name : kStepped) {
    if (whole == cut_of(name).ignores_merges && has_steps_of(steps, name)) return std::string(name);
  }
  return invalid_input(
      "{}: pre_tokenizer: GGUF has no name for how this tokenizer cuts text; expected that of gpt-2, smollm, "
      "llama-bpe, dbrx, qwen2, qwen35, tekken, gpt-4o, {}",
      origin, fmt::join(kStepped, ", "));
}

absl::StatusOr<bool> puts_blank_first(const Json& tokenizer, const std::string& origin) {
  bool blank_first = false;
  bool marks = false;
  for (const Json& step : steps_of(tokenizer, "normalizer", "normalizers")) {
    if (word(step, "type") == "Prepend" && word(step, "prepend") == "\u2581") {
      blank_first = true;
    } else if (is_blank_to_mark(step)) {
      marks = true;
    } else {
      return invalid_input("{}: normalizer: {} has no counterpart in GGUF's llama tokenizer", origin,
                           word(step, "type"));
    }
  }
  const std::vector<Json> steps = steps_of(tokenizer, "pre_tokenizer", "pretokenizers");
  if (steps.size() == 1 && word(steps[0], "type") == "Metaspace" && !flag(steps[0], "split", true)) {
    marks = true;
    blank_first = blank_first || word(steps[0], "prepend_scheme") != "never";
  } else if (!steps.empty() && !(marks && steps.size() == 1 && is_cut_at_blanks(steps[0]))) {
    return invalid_input("{}: pre_tokenizer: this way to cut text has no counterpart in GGUF's llama tokenizer",
                         origin);
  }
  if (!marks) return invalid_input("{}: normalizer: expected blanks to become U+2581, as in llama's tokenizer", origin);
  return blank_first;
}

}  // namespace rondo::gguf
