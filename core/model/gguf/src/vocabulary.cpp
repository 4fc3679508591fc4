// tokenizer.json as GGUF spells it. The room `tokenizer` has read the file before, so that its form is known to be
// right.
#include "vocabulary.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rondo/base/status.h"
#include "rondo/data/template_source.h"
#include "rondo/data/tokenizer.h"
#include "rondo/model/config_documents.h"
#include "splitting.h"

namespace rondo::gguf {
namespace {

using Json = nlohmann::json;

struct Merge {
  std::string left;
  std::string right;
};

std::vector<Merge> merges_of(const Json& model) {
  std::vector<Merge> merges;
  if (!model.contains("merges") || !model["merges"].is_array()) return merges;
  for (const Json& entry : model["merges"]) {
    if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
      merges.push_back({entry[0].get<std::string>(), entry[1].get<std::string>()});
    } else if (entry.is_string()) {
      const auto& text = entry.get_ref<const std::string&>();
      const std::size_t blank = text.find(' ');
      // The room `tokenizer` passes over such a first line too.
      if (blank == std::string::npos || text.starts_with("#version")) continue;
      merges.push_back({text.substr(0, blank), text.substr(blank + 1)});
    }
  }
  return merges;
}

std::set<std::string> added_tokens(const Json& file) {
  std::set<std::string> added;
  if (!file.contains("added_tokens") || !file["added_tokens"].is_array()) return added;
  for (const Json& token : file["added_tokens"]) {
    if (token.is_object() && token.contains("content") && token["content"].is_string()) {
      added.insert(token["content"].get<std::string>());
    }
  }
  return added;
}

/// <0x00> to <0xFF>.
bool spells_byte(const std::string& token) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return token.size() == 6 && token.starts_with("<0x") && token[5] == '>' && is_digit(token[3]) && is_digit(token[4]);
}

struct Tokens {
  std::vector<std::string> texts;
  std::vector<std::int32_t> kinds;
};

/// The token for what the vocabulary lacks: the model's own, else the one that the configuration names.
std::optional<std::string> unknown_token(const data::Tokenizer& tokenizer, const Json& file) {
  const Json& bpe = file["model"];
  if (bpe.contains("unk_token") && bpe["unk_token"].is_string()) return bpe["unk_token"].get<std::string>();
  return tokenizer.unk_token();
}

Tokens tokens_of(const data::Tokenizer& tokenizer, const Json& file, bool byte_fallback, std::uint32_t count) {
  const std::optional<std::string> unknown = unknown_token(tokenizer, file);
  const std::set<std::string> added = added_tokens(file);
  Tokens tokens;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto id = static_cast<data::TokenId>(i);
    std::string text = tokenizer.token_of(id);
    std::int32_t kind = kNormal;
    if (text.empty()) {
      // A row of the embedding that no text leads to.
      text = fmt::format("[PAD{}]", i);
      kind = kUnused;
    } else if (byte_fallback && unknown == text) {
      kind = kUnknown;
    } else if (tokenizer.is_special(id)) {
      kind = kControl;
    } else if (added.contains(text)) {
      kind = kUserDefined;
    } else if (byte_fallback && spells_byte(text)) {
      kind = kByte;
    }
    tokens.texts.push_back(std::move(text));
    tokens.kinds.push_back(kind);
  }
  return tokens;
}

/// Readers of llama's tokenizer join the two neighbours whose union scores highest: the earlier the merge that makes a
/// token, the higher its score. What no merge makes comes last.
std::vector<float> scores_of(const Tokens& tokens, const std::vector<Merge>& merges) {
  std::map<std::string, std::size_t> first;
  for (std::size_t rank = 0; rank < merges.size(); ++rank)
    first.try_emplace(merges[rank].left + merges[rank].right, rank);
  std::vector<float> scores;
  for (std::size_t i = 0; i < tokens.texts.size(); ++i) {
    const auto found = first.find(tokens.texts[i]);
    if (tokens.kinds[i] != kNormal) {
      scores.push_back(0.0F);
    } else {
      scores.push_back(-static_cast<float>(found != first.end() ? found->second : merges.size() + i));
    }
  }
  return scores;
}

void add_id(std::string_view key, const data::Tokenizer& tokenizer, const std::optional<std::string>& name,
            std::optional<std::int32_t> fallback, Keys& keys) {
  const std::optional<data::TokenId> id = name ? tokenizer.id_of(*name) : std::nullopt;
  const std::optional<std::int32_t> value = id ? id : fallback;
  if (value && *value >= 0) keys.add(key, static_cast<std::uint32_t>(*value));
}

/// What the tokenizer puts around a text. What its post-processor adds is seen on a text, whatever its kind.
struct Around {
  bool bos = false;
  bool eos = false;
};
Around around_texts(const data::Tokenizer& tokenizer) {
  const std::vector<data::TokenId> plain = tokenizer.encode("a", false).ids;
  const std::vector<data::TokenId> whole = tokenizer.encode("a", true).ids;
  const auto at = std::search(whole.begin(), whole.end(), plain.begin(), plain.end());
  return {at != whole.begin(), static_cast<std::size_t>(at - whole.begin()) + plain.size() < whole.size()};
}

/// Readers of Gemma 4's tokenizer go by merges as they are listed, cut a text where lines end and begin, and put a bos
/// before it always. Of other models, and where it is otherwise, they go by scores.
bool goes_by_merges(const model::ModelConfig& config, bool blank_first, const Around& around,
                    const std::vector<Merge>& merges) {
  const auto only_ends = [](const std::string& text) { return text.find_first_not_of('\n') == std::string::npos; };
  const auto crosses_lines = [&](const Merge& merge) {
    const std::string whole = merge.left + merge.right;
    return whole.find('\n') != std::string::npos && !only_ends(whole);
  };
  return config.family == model::Family::kGemma4 && !blank_first && around.bos &&
         std::ranges::none_of(merges, crosses_lines);
}

std::vector<std::string> pairs_of(const std::vector<Merge>& merges) {
  std::vector<std::string> pairs;
  for (const Merge& merge : merges) pairs.push_back(merge.left + " " + merge.right);
  return pairs;
}

void add_special_ids(const std::vector<std::int32_t>& stops, const data::Tokenizer& tokenizer, const Json& file,
                     const model::ModelConfig& config, Keys& keys) {
  const std::optional<std::int32_t> eos = stops.empty() ? std::nullopt : std::optional(stops.front());
  add_id("tokenizer.ggml.bos_token_id", tokenizer, tokenizer.bos_token(), config.bos_token_id, keys);
  add_id("tokenizer.ggml.eos_token_id", tokenizer, tokenizer.eos_token(), eos, keys);
  add_id("tokenizer.ggml.unknown_token_id", tokenizer, unknown_token(tokenizer, file), std::nullopt, keys);
  add_id("tokenizer.ggml.padding_token_id", tokenizer, tokenizer.pad_token(), config.pad_token_id, keys);
  // A second token that ends answers: readers stop at the end of a turn as well as at the end of the text.
  const std::optional<std::string> named = tokenizer.eos_token();
  const std::optional<data::TokenId> written = named ? tokenizer.id_of(*named) : eos;
  for (const std::int32_t stop : stops) {
    if (stop == written || stop < 0) continue;
    keys.add("tokenizer.ggml.eot_token_id", static_cast<std::uint32_t>(stop));
    break;
  }
  const Around around = around_texts(tokenizer);
  keys.add("tokenizer.ggml.add_bos_token", around.bos);
  keys.add("tokenizer.ggml.add_eos_token", around.eos);
}

}  // namespace

absl::Status add_tokenizer_keys(const Documents& base, const model::ModelConfig& config, Keys& keys) {
  RONDO_ASSIGN_OR_RETURN(const data::Tokenizer tokenizer, data::Tokenizer::load(base));
  const std::string path = base.place("tokenizer.json");
  if (tokenizer.size() > config.vocab_size) {
    return invalid_input("{}: expected at most {} tokens, the model's vocab_size, found {}", path, config.vocab_size,
                         tokenizer.size());
  }
  RONDO_ASSIGN_OR_RETURN(const std::string text, base.read("tokenizer.json"));
  const Json file = Json::parse(text, nullptr, false);
  if (!file.is_object() || !file.contains("model") || !file["model"].is_object()) {
    return invalid_input("{}: expected an object with the key model", path);
  }
  const Json& bpe = file["model"];
  const bool byte_fallback =
      bpe.contains("byte_fallback") && bpe["byte_fallback"].is_boolean() && bpe["byte_fallback"].get<bool>();
  const Tokens tokens = tokens_of(tokenizer, file, byte_fallback, config.vocab_size);
  const std::vector<Merge> merges = merges_of(bpe);
  if (byte_fallback) {
    RONDO_ASSIGN_OR_RETURN(const bool blank_first, puts_blank_first(file, path));
    const bool by_merges = goes_by_merges(config, blank_first, around_texts(tokenizer), merges);
    keys.add("tokenizer.ggml.model", by_merges ? "gemma4" : "llama");
    if (!by_merges) keys.add("tokenizer.ggml.pre", "default");
    keys.add("tokenizer.ggml.add_space_prefix", blank_first);
    keys.add("tokenizer.ggml.tokens", tokens.texts);
    keys.add("tokenizer.ggml.scores", scores_of(tokens, merges));
    if (by_merges) keys.add("tokenizer.ggml.merges", pairs_of(merges));
  } else {
    RONDO_ASSIGN_OR_RETURN(const std::string splitting, splitting_name(file, path));
    keys.add("tokenizer.ggml.model", "gpt2");
    keys.add("tokenizer.ggml.pre", splitting);
    keys.add("tokenizer.ggml.tokens", tokens.texts);
    keys.add("tokenizer.ggml.merges", pairs_of(merges));
  }
  keys.add("tokenizer.ggml.token_type", tokens.kinds);
  RONDO_ASSIGN_OR_RETURN(const std::vector<std::int32_t> stops, model::load_stop_ids(base, config));
  add_special_ids(stops, tokenizer, file, config, keys);
  RONDO_ASSIGN_OR_RETURN(const data::TemplateSources chat, data::chat_template_sources(base));
  if (chat.text) keys.add("tokenizer.chat_template", *chat.text);
  if (chat.for_tools) {
    keys.add("tokenizer.chat_templates", std::vector<std::string>{"tool_use"});
    keys.add("tokenizer.chat_template.tool_use", *chat.for_tools);
  }
  return absl::OkStatus();
}

}  // namespace rondo::gguf
