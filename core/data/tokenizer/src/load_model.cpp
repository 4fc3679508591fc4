// The parts of tokenizer.json that hold tokens: the model, the added tokens and the template of special tokens.
#include <map>
#include <utility>

#include "load.h"
#include "rondo/base/status.h"

namespace rondo::data::tok {
namespace {

struct Vocabulary {
  TokenTable table;
  std::vector<std::string> spellings;
};

absl::StatusOr<Vocabulary> load_vocabulary(const Fields& part) {
  const Fields field = part.member("vocab");
  RONDO_RETURN_IF_ERROR(field.expect_object());
  Vocabulary out;
  for (const auto& [token, value] : field.value().items()) {
    RONDO_ASSIGN_OR_RETURN(const TokenId id, token_id(Fields(value, fmt::format("{}['{}']", field.where(), token))));
    const auto index = static_cast<std::size_t>(id);
    if (index >= out.spellings.size()) out.spellings.resize(index + 1);
    out.spellings[index] = token;
    out.table.insert(token, static_cast<std::uint32_t>(id));
  }
  return out;
}

struct MergePair {
  std::string left;
  std::string right;
};

// A merge is a string with one blank, or an array of two strings.
absl::StatusOr<MergePair> load_merge(const Fields& merge) {
  const Json& value = merge.value();
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string()) {
    return MergePair{value[0].get_ref<const std::string&>(), value[1].get_ref<const std::string&>()};
  }
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const std::size_t blank = text.find(' ');
    if (blank != std::string::npos && text.find(' ', blank + 1) == std::string::npos) {
      return MergePair{text.substr(0, blank), text.substr(blank + 1)};
    }
  }
  return merge.error("expected two tokens, as \"a b\" or [\"a\", \"b\"]");
}

absl::StatusOr<TokenId> merged_token(const TokenTable& vocabulary, const std::string& token, const Fields& merge) {
  const auto id = vocabulary.find(token);
  if (!id.has_value()) return merge.error(fmt::format("the token '{}' is not in the vocabulary", token));
  return static_cast<TokenId>(*id);
}

absl::StatusOr<MergeTable> load_merges(const Fields& part, const TokenTable& vocabulary) {
  RONDO_ASSIGN_OR_RETURN(const std::vector<Fields> merges, part.list("merges"));
  MergeTable table(merges.size());
  std::uint32_t rank = 0;
  for (const Fields& merge : merges) {
    if (merge.value().is_string() && merge.value().get_ref<const std::string&>().rfind("#version", 0) == 0) continue;
    RONDO_ASSIGN_OR_RETURN(const MergePair pair, load_merge(merge));
    RONDO_ASSIGN_OR_RETURN(const TokenId left, merged_token(vocabulary, pair.left, merge));
    RONDO_ASSIGN_OR_RETURN(const TokenId right, merged_token(vocabulary, pair.right, merge));
    RONDO_ASSIGN_OR_RETURN(const TokenId both, merged_token(vocabulary, pair.left + pair.right, merge));
    table.insert(left, right, {rank++, both});
  }
  return table;
}

absl::Status refuse_unless_empty(const Fields& part, const char* key) {
  const Fields affix = part.member(key);
  const Json& value = affix.value();
  if (value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty())) return absl::OkStatus();
  return affix.error("only null and the empty string are supported");
}

absl::StatusOr<BpeOptions> load_options(const Fields& part, bool byte_symbols) {
  BpeOptions options;
  options.byte_symbols = byte_symbols;
  RONDO_ASSIGN_OR_RETURN(options.byte_fallback, part.flag_or("byte_fallback", false));
  RONDO_ASSIGN_OR_RETURN(options.fuse_unknown, part.flag_or("fuse_unk", false));
  RONDO_ASSIGN_OR_RETURN(options.ignore_merges, part.flag_or("ignore_merges", false));
  if (!part.member("unk_token").value().is_null()) {
    RONDO_ASSIGN_OR_RETURN(options.unknown_token, part.text("unk_token"));
  }
  const Fields dropout = part.member("dropout");
  const Json& share = dropout.value();
  if (!share.is_null() && !(share.is_number() && share.get<double>() == 0.0)) {
    return dropout.error("random merges are not supported; set it to null");
  }
  RONDO_RETURN_IF_ERROR(refuse_unless_empty(part, "continuing_subword_prefix"));
  RONDO_RETURN_IF_ERROR(refuse_unless_empty(part, "end_of_word_suffix"));
  return options;
}

// One element of added_tokens, without its id.
absl::StatusOr<AddedToken> load_added_token(const Fields& part) {
  AddedToken token;
  RONDO_RETURN_IF_ERROR(part.expect_object());
  RONDO_ASSIGN_OR_RETURN(token.content, part.text("content"));
  RONDO_ASSIGN_OR_RETURN(token.special, part.flag("special"));
  RONDO_ASSIGN_OR_RETURN(token.normalized, part.flag("normalized"));
  RONDO_ASSIGN_OR_RETURN(token.strip_left, part.flag("lstrip"));
  RONDO_ASSIGN_OR_RETURN(token.strip_right, part.flag("rstrip"));
  RONDO_ASSIGN_OR_RETURN(token.single_word, part.flag("single_word"));
  return token;
}

// {"Sequence": {"id": "A"}} or {"SpecialToken": {"id": "<s>"}}.
absl::StatusOr<Template::Part> load_template_part(const Fields& part, const Fields& special_tokens) {
  RONDO_RETURN_IF_ERROR(part.expect_object());
  if (part.has("Sequence")) {
    const Fields sequence = part.member("Sequence");
    RONDO_RETURN_IF_ERROR(sequence.expect_object());
    RONDO_ASSIGN_OR_RETURN(const std::string id, sequence.text("id"));
    if (id != "A") return sequence.error(fmt::format("expected the sequence A, found '{}'", id));
    return Template::Part{true, {}};
  }
  if (!part.has("SpecialToken")) return part.error("expected a Sequence or a SpecialToken");
  const Fields special = part.member("SpecialToken");
  RONDO_RETURN_IF_ERROR(special.expect_object());
  RONDO_ASSIGN_OR_RETURN(const std::string name, special.text("id"));
  const Fields entry = special_tokens.member(name.c_str());
  if (entry.value().is_null()) return special.error(fmt::format("'{}' is not among special_tokens", name));
  RONDO_RETURN_IF_ERROR(entry.expect_object());
  RONDO_ASSIGN_OR_RETURN(const std::vector<Fields> ids, entry.list("ids"));
  Template::Part out;
  for (const Fields& id : ids) {
    RONDO_ASSIGN_OR_RETURN(const TokenId value, token_id(id));
    out.ids.push_back(value);
  }
  return out;
}

}  // namespace

absl::StatusOr<Model> load_model(const Fields& part, bool byte_symbols) {
  RONDO_RETURN_IF_ERROR(part.expect_object());
  if (part.has("type")) {
    RONDO_ASSIGN_OR_RETURN(const std::string type, part.type());
    if (type != "BPE") return part.error(fmt::format("the model '{}' is not supported; supported is BPE", type));
  }
  RONDO_ASSIGN_OR_RETURN(BpeOptions options, load_options(part, byte_symbols));
  RONDO_ASSIGN_OR_RETURN(Vocabulary vocabulary, load_vocabulary(part));
  RONDO_ASSIGN_OR_RETURN(MergeTable merges, load_merges(part, vocabulary.table));
  if (options.unknown_token.has_value() && !vocabulary.table.find(*options.unknown_token).has_value()) {
    return part.member("unk_token").error(fmt::format("'{}' is not in the vocabulary", *options.unknown_token));
  }
  Model model{Bpe(std::move(options), std::move(vocabulary.table), std::move(merges)), std::move(vocabulary.spellings)};
  for (std::size_t id = 0; id < model.spellings.size(); ++id) {
    if (!model.spellings[id].empty()) model.bpe.note_word(model.spellings[id], static_cast<TokenId>(id));
  }
  return model;
}

absl::StatusOr<AddedTokens> load_added_tokens(const Fields& top, const Bpe& model,
                                              const std::vector<Normalizer>& normalizers) {
  AddedTokens out;
  if (top.member("added_tokens").value().is_null()) return out;
  RONDO_ASSIGN_OR_RETURN(const std::vector<Fields> list, top.list("added_tokens"));
  std::map<std::string, TokenId> ids;
  std::map<TokenId, AddedToken> tokens;  // a token that comes twice counts as it comes last
  auto next = static_cast<TokenId>(model.size());
  for (const Fields& element : list) {
    RONDO_ASSIGN_OR_RETURN(AddedToken token, load_added_token(element));
    if (token.content.empty()) continue;
    const auto known = model.id_of(token.content);
    const auto [place, fresh] = ids.try_emplace(token.content, known.value_or(next));
    if (fresh && !known.has_value()) ++next;
    token.id = place->second;
    token.searched = token.normalized ? normalize(normalizers, token.content) : token.content;
    tokens[token.id] = std::move(token);
  }
  for (auto& [id, token] : tokens) {
    auto status = out.add(std::move(token));
    if (!status.ok()) return with_context(status, "added_tokens");
  }
  return out;
}

absl::StatusOr<Template> load_template(const Fields& part) {
  RONDO_ASSIGN_OR_RETURN(const std::vector<Fields> list, part.list("single"));
  const Fields special_tokens = part.member("special_tokens");
  RONDO_RETURN_IF_ERROR(special_tokens.expect_object());
  Template out;
  for (const Fields& element : list) {
    RONDO_ASSIGN_OR_RETURN(Template::Part piece, load_template_part(element, special_tokens));
    out.parts.push_back(std::move(piece));
  }
  return out;
}

}  // namespace rondo::data::tok
