// A vocabulary has a quarter of a million entries: its part of tokenizer.json is written as text, the rest as JSON.
#include "import_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "cuts.h"
#include "key_reader.h"
#include "rondo/base/status.h"
#include "vocabulary.h"

namespace rondo::gguf {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct Vocabulary {
  std::vector<std::string_view> tokens;
  std::vector<std::int32_t> kinds;  // as many
  std::unordered_map<std::string_view, std::uint32_t> ids;

  /// Rows of the embedding that no text leads to have names made of their number.
  bool is_padding(std::size_t id) const { return kinds[id] == kUnused && tokens[id] == fmt::format("[PAD{}]", id); }
  /// A text that stands twice is the later one's.
  bool counts(std::size_t id) const { return !is_padding(id) && ids.at(tokens[id]) == id; }
};

Vocabulary read_vocabulary(KeyReader& keys, const model::ModelConfig& config) {
  Vocabulary out;
  const char* key = "tokenizer.ggml.tokens";
  out.tokens = keys.texts(key);
  out.kinds = keys.integers("tokenizer.ggml.token_type");
  if (out.tokens.empty() || out.tokens.size() > config.vocab_size) {
    keys.refuse(key, fmt::format("expected 1 to {} texts, the rows of token_embd.weight, found {}", config.vocab_size,
                                 out.tokens.size()));
  }
  if (!keys.has("tokenizer.ggml.token_type")) out.kinds.assign(out.tokens.size(), kNormal);
  if (out.kinds.size() != out.tokens.size()) {
    keys.refuse("tokenizer.ggml.token_type",
                fmt::format("expected {}, one a token, found {}", out.tokens.size(), out.kinds.size()));
    out.kinds.assign(out.tokens.size(), kNormal);
  }
  for (std::size_t i = 0; i < out.tokens.size(); ++i) out.ids[out.tokens[i]] = static_cast<std::uint32_t>(i);
  return out;
}

std::string json_text(std::string_view text) { return OrderedJson(std::string(text)).dump(); }

std::string vocabulary_text(const Vocabulary& vocabulary) {
  std::string text = "{";
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (!vocabulary.counts(i)) continue;
    if (text.size() > 1) text += ",\n";
    text += json_text(vocabulary.tokens[i]) + ":" + std::to_string(i);
  }
  return text + "}";
}

std::string merge_text(std::string_view left, std::string_view right) {
  return "[" + json_text(left) + "," + json_text(right) + "]";
}

/// "left right", where a blank at the beginning belongs to the left.
std::string stated_merges(KeyReader& keys) {
  const char* key = "tokenizer.ggml.merges";
  const std::vector<std::string_view> merges = keys.texts(key);
  if (!keys.has(key)) keys.refuse(key, "is missing; expected an array of texts");
  std::string text = "[";
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const std::size_t blank = merges[i].find(' ', 1);
    if (blank == std::string_view::npos || blank + 1 == merges[i].size()) {
      keys.refuse(key, fmt::format("element {}: expected two tokens, found {}", i, name_in_quotes(merges[i])));
      return {};
    }
    if (i > 0) text += ",\n";
    text += merge_text(merges[i].substr(0, blank), merges[i].substr(blank + 1));
  }
  return text + "]";
}

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

struct ScoredMerge {
  float score;
  std::uint32_t left;
  std::uint32_t right;
  std::size_t left_characters;
  std::size_t right_characters;
};

/// Every cut of a token into two tokens is a merge; the better the score of the whole the earlier it comes.
std::string scored_merges(KeyReader& keys, const Vocabulary& vocabulary) {
  const char* key = "tokenizer.ggml.scores";
  const std::vector<float> scores = keys.floats(key);
  if (scores.size() != vocabulary.tokens.size()) {
    keys.refuse(key, fmt::format("expected {}, one a token, found {}", vocabulary.tokens.size(), scores.size()));
    return {};
  }
  const auto piece = [&](std::string_view text) -> std::optional<std::uint32_t> {
    const auto found = vocabulary.ids.find(text);
    if (found == vocabulary.ids.end() || vocabulary.kinds[found->second] != kNormal) return std::nullopt;
    return found->second;
  };
  std::vector<ScoredMerge> merges;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.kinds[id] != kNormal || !vocabulary.counts(id)) continue;
    const std::string_view whole = vocabulary.tokens[id];
    const std::size_t begin = merges.size();
    for (std::size_t at = 1; at < whole.size(); ++at) {
      if ((static_cast<unsigned char>(whole[at]) & 0xc0U) == 0x80U) continue;
      const auto left = piece(whole.substr(0, at));
      const auto right = piece(whole.substr(at));
      if (!left || !right) continue;
      merges.push_back({scores[id], *left, *right, characters(whole.substr(0, at)), characters(whole.substr(at))});
    }
    std::sort(merges.begin() + static_cast<std::ptrdiff_t>(begin), merges.end(),
              [](const auto& a, const auto& b) { return std::tie(a.left, a.right) < std::tie(b.left, b.right); });
  }
  std::ranges::stable_sort(merges, [](const ScoredMerge& a, const ScoredMerge& b) {
    return std::tie(a.score, a.left_characters, a.right_characters) >
           std::tie(b.score, b.left_characters, b.right_characters);
  });
  std::string text = "[";
  for (const ScoredMerge& merge : merges) {
    if (text.size() > 1) text += ",\n";
    text += merge_text(vocabulary.tokens[merge.left], vocabulary.tokens[merge.right]);
  }
  return text + "]";
}

OrderedJson added_tokens(const Vocabulary& vocabulary) {
  OrderedJson added = OrderedJson::array();
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::int32_t kind = vocabulary.kinds[i];
    const bool special = kind == kUnknown || kind == kControl;
    if ((!special && kind != kUserDefined) || !vocabulary.counts(i) || vocabulary.tokens[i].empty()) continue;
    added.push_back({{"id", i},
                     {"content", std::string(vocabulary.tokens[i])},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", special}});
  }
  return added;
}

/// The texts of special tokens, as tokenizer_config.json names them.
struct SpecialNames {
  std::optional<std::string> bos, eos, pad, unk;
  std::uint32_t bos_id = 0, eos_id = 0;
};

SpecialNames special_names(KeyReader& keys, const Vocabulary& vocabulary) {
  SpecialNames out;
  const auto name = [&](const char* word, std::uint32_t* id_out) -> std::optional<std::string> {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", word);
    if (!keys.has(key)) return std::nullopt;
    const std::uint32_t id = keys.integer(key, 0, 0xffffffffU);
    if (id == 0xffffffffU) return std::nullopt;
    if (id >= vocabulary.tokens.size()) {
      keys.refuse(key, fmt::format("expected a token below {}, found {}", vocabulary.tokens.size(), id));
      return std::nullopt;
    }
    if (id_out != nullptr) *id_out = id;
    return std::string(vocabulary.tokens[id]);
  };
  out.bos = name("bos", &out.bos_id);
  out.eos = name("eos", &out.eos_id);
  out.pad = name("padding", nullptr);
  out.unk = name("unknown", nullptr);
  if (out.unk) return out;
  const auto unknown = std::ranges::find(vocabulary.kinds, static_cast<std::int32_t>(kUnknown));
  if (unknown != vocabulary.kinds.end()) {
    out.unk = std::string(vocabulary.tokens[static_cast<std::size_t>(unknown - vocabulary.kinds.begin())]);
  }
  return out;
}

/// The parts of tokenizer.json but for the long ones.
struct Parts {
  OrderedJson normalizer;
  OrderedJson pre_tokenizer;
  OrderedJson decoder;
  OrderedJson model;  // without vocab and merges
  bool bos_by_default = false;
  bool always_bos = false;  // whatever the file says
};

/// What is put before and after a text.
OrderedJson post_processor(KeyReader& keys, const SpecialNames& names, const Parts& of_kind) {
  const bool bos =
      of_kind.always_bos || keys.flag("tokenizer.ggml.add_bos_token", of_kind.bos_by_default && names.bos.has_value());
  const bool eos = keys.flag("tokenizer.ggml.add_eos_token", false);
  if (bos && !names.bos)
    keys.refuse("tokenizer.ggml.add_bos_token",
                of_kind.always_bos ? "always true of gemma4, but there is no tokenizer.ggml.bos_token_id"
                                   : "true, but there is no tokenizer.ggml.bos_token_id");
  if (eos && !names.eos)
    keys.refuse("tokenizer.ggml.add_eos_token", "true, but there is no tokenizer.ggml.eos_token_id");
  if ((!bos && !eos) || !keys.status().ok()) return nullptr;
  OrderedJson specials = OrderedJson::object();
  const auto around = [&](const char* sequence, int type) {
    OrderedJson parts = OrderedJson::array();
    const auto special = [&](const std::string& text, std::uint32_t id) {
      parts.push_back({{"SpecialToken", {{"id", text}, {"type_id", type}}}});
      specials[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
    };
    if (bos) special(*names.bos, names.bos_id);
    parts.push_back({{"Sequence", {{"id", sequence}, {"type_id", type}}}});
    if (eos) special(*names.eos, names.eos_id);
    return parts;
  };
  const OrderedJson single = around("A", 0);
  OrderedJson pair = single;
  for (const OrderedJson& part : around("B", 1)) pair.push_back(part);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", specials}};
}

Parts byte_level_parts(KeyReader& keys) {
  const char* key = "tokenizer.ggml.pre";
  const std::string name = keys.text(key);
  const Cut cut = cut_of(name);
  if (keys.status().ok() && cut.pre_tokenizer.is_null()) {
    keys.refuse(key, fmt::format("the cut {} is not supported; supported: {}", name_in_quotes(name), cut_names()));
  }
  Parts parts;
  if (cut.composes) parts.normalizer = {{"type", "NFC"}};
  parts.pre_tokenizer = cut.pre_tokenizer;
  parts.decoder = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  parts.model = {
      {"unk_token", nullptr}, {"fuse_unk", false}, {"byte_fallback", false}, {"ignore_merges", cut.ignores_merges}};
  parts.bos_by_default = cut.adds_bos;
  return parts;
}

/// `by_merges`: Gemma 4's, which puts no blank before a text.
Parts byte_fallback_parts(KeyReader& keys, const SpecialNames& names, bool by_merges) {
  const bool blank_first = !by_merges && keys.flag("tokenizer.ggml.add_space_prefix", true);
  const OrderedJson mark = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  const OrderedJson unmark = {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}};
  Parts parts;
  OrderedJson normalizers = OrderedJson::array();
  if (blank_first) normalizers.push_back({{"type", "Prepend"}, {"prepend", "\u2581"}});
  normalizers.push_back(mark);
  parts.normalizer = {{"type", "Sequence"}, {"normalizers", normalizers}};
  OrderedJson decoders = {unmark, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (blank_first) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  parts.decoder = {{"type", "Sequence"}, {"decoders", decoders}};
  parts.model = {{"unk_token", names.unk ? OrderedJson(*names.unk) : OrderedJson(nullptr)},
                 {"fuse_unk", true},
                 {"byte_fallback", true},
                 {"ignore_merges", false}};
  parts.bos_by_default = true;
  parts.always_bos = by_merges;
  return parts;
}

std::string tokenizer_text(const Parts& parts, const OrderedJson& added, const OrderedJson& post,
                           const std::string& vocabulary, const std::string& merges) {
  OrderedJson model = {
      {"type", "BPE"}, {"dropout", nullptr}, {"continuing_subword_prefix", nullptr}, {"end_of_word_suffix", nullptr}};
  model.update(parts.model);
  std::string text = "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null";
  const auto member = [&](const char* name, const OrderedJson& value) {
    text += fmt::format(",\n\"{}\":{}", name, value.dump());
  };
  member("added_tokens", added);
  member("normalizer", parts.normalizer);
  member("pre_tokenizer", parts.pre_tokenizer);
  member("post_processor", post);
  member("decoder", parts.decoder);
  std::string head = model.dump();
  head.pop_back();  // its closing brace
  text += ",\n\"model\":" + head + ",\n\"vocab\":" + vocabulary + ",\n\"merges\":" + merges + "}}\n";
  return text;
}

std::string config_text(const SpecialNames& names, const model::ModelConfig& config) {
  OrderedJson out = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                     {"clean_up_tokenization_spaces", false},
                     {"model_max_length", config.max_positions}};
  const auto add = [&](const char* key, const std::optional<std::string>& text) {
    if (text) out[key] = *text;
  };
  add("bos_token", names.bos);
  add("eos_token", names.eos);
  add("pad_token", names.pad);
  add("unk_token", names.unk);
  return out.dump(2) + "\n";
}

}  // namespace

absl::Status import_tokenizer(const StoredFile& file, const model::ModelConfig& config,
                              std::map<std::string, std::string>& documents) {
  KeyReader keys(file);
  const std::string kind = keys.text("tokenizer.ggml.model", "none");
  if (kind == "none" && keys.status().ok()) return absl::OkStatus();
  const bool byte_level = kind == "gpt2";
  const bool by_merges = kind == "gemma4";
  if (!byte_level && !by_merges && kind != "llama") {
    keys.refuse("tokenizer.ggml.model",
                fmt::format("{} is not supported; supported: gpt2, llama, gemma4", name_in_quotes(kind)));
    return keys.status();
  }
  const Vocabulary vocabulary = read_vocabulary(keys, config);
  RONDO_RETURN_IF_ERROR(keys.status());
  const SpecialNames names = special_names(keys, vocabulary);
  const Parts parts = byte_level ? byte_level_parts(keys) : byte_fallback_parts(keys, names, by_merges);
  const OrderedJson post = post_processor(keys, names, parts);
  const std::string merges = byte_level || by_merges ? stated_merges(keys) : scored_merges(keys, vocabulary);
  const std::string chat = keys.text("tokenizer.chat_template", "");
  const std::string chat_with_tools = keys.text("tokenizer.chat_template.tool_use", "");
  RONDO_RETURN_IF_ERROR(keys.status());
  documents["tokenizer.json"] =
      tokenizer_text(parts, added_tokens(vocabulary), post, vocabulary_text(vocabulary), merges);
  documents["tokenizer_config.json"] = config_text(names, config);
  if (!chat.empty()) documents["chat_template.jinja"] = chat;
  if (!chat_with_tools.empty()) documents["additional_chat_templates/tool_use.jinja"] = chat_with_tools;
  return absl::OkStatus();
}

}  // namespace rondo::gguf
