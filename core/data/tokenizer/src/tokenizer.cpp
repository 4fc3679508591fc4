#include "rondo/data/tokenizer.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "load.h"
#include "rondo/base/status.h"
#include "utf8.h"

namespace rondo::data {
namespace {

constexpr std::array<const char*, 7> kNames = {"bos_token", "eos_token", "pad_token", "unk_token",
                                               "cls_token", "sep_token", "mask_token"};

using SpecialNames = std::map<std::string, std::string>;

// A string, or an object with the string `content`.
absl::StatusOr<std::optional<std::string>> read_name(const tok::Fields& file, const std::string& key) {
  const tok::Fields field = file.member(key.c_str());
  if (field.value().is_null()) return std::optional<std::string>();
  if (field.value().is_object()) {
    RONDO_ASSIGN_OR_RETURN(std::string name, field.text("content"));
    return std::optional<std::string>(std::move(name));
  }
  RONDO_ASSIGN_OR_RETURN(std::string name, file.text(key.c_str()));
  return std::optional<std::string>(std::move(name));
}

// What `file` names of kNames, and of names of its own under extra_special_tokens, in place of what `names` holds.
absl::Status read_names_of(const tok::Fields& file, SpecialNames& names) {
  for (const char* const key : kNames) {
    RONDO_ASSIGN_OR_RETURN(std::optional<std::string> name, read_name(file, key));
    if (name) names[key] = *std::move(name);
  }
  const tok::Fields extra = file.member("extra_special_tokens");
  if (!extra.value().is_object()) return absl::OkStatus();
  for (const auto& [key, value] : extra.value().items()) {
    RONDO_ASSIGN_OR_RETURN(std::optional<std::string> name, read_name(extra, key));
    if (name) names[key] = *std::move(name);
  }
  return absl::OkStatus();
}

// Models from before tokenizer.json have files of other kinds in its place.
absl::Status without_file(const Documents& documents) {
  const std::string folder = documents.origin().string();
  for (const char* other : {"tokenizer.model", "vocab.json"}) {
    if (!documents.has(other)) continue;
    return invalid_input(
        "{}: expected tokenizer.json, found {}; transformers' AutoTokenizer writes the one from the "
        "other with save_pretrained",
        folder, other);
  }
  return invalid_input("{}: expected tokenizer.json, found none; fetch it with the model", folder);
}

}  // namespace

class Tokenizer::Impl {
 public:
  static absl::StatusOr<std::unique_ptr<const Impl>> load(const Documents& documents);

  Encoded encode(std::string_view text, bool add_special_tokens) const;
  std::size_t inserted_before() const;
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;
  std::optional<TokenId> id_of(std::string_view token) const;
  const std::string* spelling_of(TokenId id) const;
  const tok::AddedTokens& added() const { return added_; }
  std::size_t size() const { return size_; }
  const SpecialNames& names() const { return names_; }
  std::optional<std::string> name(const std::string& key) const {
    const auto found = names_.find(key);
    return found == names_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  struct Spaces {
    std::uint16_t leading = 0;
    std::uint16_t trailing = 0;
  };

  absl::Status read_components(const tok::Fields& file);
  absl::Status read_names(const Documents& documents);
  void place_tokens(const tok::Pieces& pieces, std::vector<tok::PlacedToken>& out, std::uint64_t& dropped) const;

  std::vector<tok::Normalizer> normalizers_;
  tok::PreTokenizers pre_tokenizers_;
  tok::Model model_;
  std::vector<Spaces> spaces_;  // of each spelling of the model
  tok::AddedTokens added_;
  std::vector<tok::PostProcessor> post_processors_;
  std::optional<std::vector<tok::Decoder>> decoders_;
  std::size_t size_ = 0;
  SpecialNames names_;
};

absl::Status Tokenizer::Impl::read_components(const tok::Fields& file) {
  if (file.has("version")) {
    RONDO_ASSIGN_OR_RETURN(const std::string version, file.text("version"));
    if (version != "1.0") return file.member("version").error(fmt::format("expected 1.0, found '{}'", version));
  }
  RONDO_ASSIGN_OR_RETURN(normalizers_, tok::load_normalizers(file.member("normalizer")));
  RONDO_ASSIGN_OR_RETURN(pre_tokenizers_, tok::load_pre_tokenizers(file.member("pre_tokenizer")));
  RONDO_ASSIGN_OR_RETURN(post_processors_, tok::load_post_processors(file.member("post_processor")));
  RONDO_ASSIGN_OR_RETURN(decoders_, tok::load_decoders(file.member("decoder")));
  RONDO_ASSIGN_OR_RETURN(model_, tok::load_model(file.member("model"), pre_tokenizers_.byte_symbols()));
  RONDO_ASSIGN_OR_RETURN(added_, tok::load_added_tokens(file, model_.bpe, normalizers_));
  size_ = model_.spellings.size();
  if (!added_.all().empty()) size_ = std::max(size_, static_cast<std::size_t>(added_.all().rbegin()->first) + 1);
  for (const std::string& spelling : model_.spellings) {
    std::size_t leading = 0;
    std::size_t trailing = 0;
    tok::count_spaces(spelling, leading, trailing);
    spaces_.push_back({static_cast<std::uint16_t>(std::min<std::size_t>(leading, UINT16_MAX)),
                       static_cast<std::uint16_t>(std::min<std::size_t>(trailing, UINT16_MAX))});
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::Impl::read_names(const Documents& documents) {
  // As transformers has it, special_tokens_map.json counts unless the configuration lists its added tokens.
  bool listed = false;
  bool configured = false;
  for (const char* const document : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (listed || !documents.has(document)) continue;
    RONDO_ASSIGN_OR_RETURN(const tok::Json json, tok::read_json(documents, document));
    const tok::Fields file(json, "");
    const absl::Status read = read_names_of(file, names_);
    if (!read.ok()) return with_context(read, documents.place(document));
    configured = true;
    listed = file.has("added_tokens_decoder");
  }
  const std::string document = "config.json";
  if (configured || !documents.has(document)) return absl::OkStatus();
  // Without the tokenizer's own configuration the model's names the tokens by id; a list's first is the one.
  RONDO_ASSIGN_OR_RETURN(const tok::Json json, tok::read_json(documents, document));
  const tok::Fields file(json, "");
  for (const char* const key : kNames) {
    const tok::Fields field = file.member(fmt::format("{}_id", key).c_str());
    const tok::Json& value = field.value().is_array() && !field.value().empty() ? field.value()[0] : field.value();
    if (value.is_null()) continue;
    auto id = tok::token_id(tok::Fields(value, field.where()));
    if (!id.ok()) return with_context(id.status(), documents.place(document));
    const std::string* const spelling = spelling_of(*id);
    if (spelling != nullptr) names_[key] = *spelling;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const Tokenizer::Impl>> Tokenizer::Impl::load(const Documents& documents) {
  const std::string document = "tokenizer.json";
  if (!documents.made() && !documents.has(document)) return without_file(documents);
  RONDO_ASSIGN_OR_RETURN(const tok::Json json, tok::read_json(documents, document));
  auto impl = std::make_unique<Impl>();
  const absl::Status status = impl->read_components(tok::Fields(json, ""));
  if (!status.ok()) return with_context(status, documents.place(document));
  RONDO_RETURN_IF_ERROR(impl->read_names(documents));
  return std::unique_ptr<const Impl>(std::move(impl));
}

const std::string* Tokenizer::Impl::spelling_of(TokenId id) const {
  if (const tok::AddedToken* const token = added_.find(id)) return &token->content;
  const auto index = static_cast<std::size_t>(id);
  if (id < 0 || index >= model_.spellings.size() || model_.spellings[index].empty()) return nullptr;
  return &model_.spellings[index];
}

std::optional<TokenId> Tokenizer::Impl::id_of(std::string_view token) const {
  if (const tok::AddedToken* const added = added_.find(token)) return added->id;
  return model_.bpe.id_of(token);
}

void Tokenizer::Impl::place_tokens(const tok::Pieces& pieces, std::vector<tok::PlacedToken>& out,
                                   std::uint64_t& dropped) const {
  tok::Bpe::Scratch scratch;
  std::vector<tok::WordToken> word;
  for (const tok::Piece& piece : pieces.list) {
    if (piece.token.has_value()) {
      tok::PlacedToken& token = out.emplace_back();
      token.id = *piece.token;
      if (piece.size() > 0) token.range = piece.range(0, piece.size());
      tok::count_spaces(piece.text(), token.leading_spaces, token.trailing_spaces);
      continue;
    }
    word.clear();
    dropped += model_.bpe.tokenize(piece.text(), scratch, word);
    for (const tok::WordToken& token : word) {
      const Spaces& spaces = spaces_[static_cast<std::size_t>(token.id)];
      out.push_back({token.id, piece.range(token.begin, token.end), spaces.leading, spaces.trailing});
    }
  }
}

Encoded Tokenizer::Impl::encode(std::string_view text, bool add_special_tokens) const {
  tok::RegexScratch scratch;
  tok::Pieces pieces = tok::whole_text(text);
  added_.split(pieces, false);
  if (!normalizers_.empty()) {
    for (tok::Piece& piece : pieces.list) {
      if (piece.token.has_value()) continue;
      const tok::Piece normal = tok::normalize(normalizers_, piece, pieces, scratch);
      piece = normal.slice(0, normal.size());
    }
  }
  added_.split(pieces, true);
  tok::pre_tokenize(pre_tokenizers_, pieces, scratch);

  Encoded out;
  std::vector<tok::PlacedToken> tokens;
  tokens.reserve(text.size() / 3 + 8);
  place_tokens(pieces, tokens, out.dropped);
  tok::post_process(post_processors_, text, add_special_tokens, tokens);
  out.ids.reserve(tokens.size());
  out.ranges.reserve(tokens.size());
  for (const tok::PlacedToken& token : tokens) {
    out.ids.push_back(token.id);
    out.ranges.push_back(token.range);
  }
  return out;
}

std::size_t Tokenizer::Impl::inserted_before() const {
  constexpr TokenId kText = -1;
  std::vector<tok::PlacedToken> tokens(1);
  tokens.front().id = kText;
  tok::post_process(post_processors_, "", true, tokens);
  const auto text = std::find_if(tokens.begin(), tokens.end(), [](const auto& token) { return token.id == kText; });
  return static_cast<std::size_t>(text - tokens.begin());
}

std::string Tokenizer::Impl::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  for (const TokenId id : ids) {
    const tok::AddedToken* const added = added_.find(id);
    const std::string* const spelling = added != nullptr ? &added->searched : spelling_of(id);
    if (spelling == nullptr) continue;
    if (skip_special_tokens && added != nullptr) {
      // What counts is whether the text that decoding starts from is a special token's: the reference asks by name.
      const tok::AddedToken* const named = added_.find(*spelling);
      if (named != nullptr && named->special) continue;
    }
    tokens.push_back(*spelling);
  }
  if (decoders_.has_value()) return tok::decode_tokens(*decoders_, std::move(tokens));
  std::string text;
  for (const std::string& token : tokens) {
    if (&token != &tokens.front()) text += ' ';
    text += token;
  }
  return text;
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

absl::StatusOr<Tokenizer> Tokenizer::load(const Documents& documents) {
  RONDO_ASSIGN_OR_RETURN(std::unique_ptr<const Impl> impl, Impl::load(documents));
  return Tokenizer(std::move(impl));
}

Encoded Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  return impl_->encode(text, add_special_tokens);
}

std::size_t Tokenizer::inserted_before() const { return impl_->inserted_before(); }

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  return impl_->decode(ids, skip_special_tokens);
}

std::optional<TokenId> Tokenizer::id_of(std::string_view token) const { return impl_->id_of(token); }

std::string Tokenizer::token_of(TokenId id) const {
  const std::string* const spelling = impl_->spelling_of(id);
  return spelling == nullptr ? std::string() : *spelling;
}

bool Tokenizer::is_special(TokenId id) const {
  const tok::AddedToken* const token = impl_->added().find(id);
  return token != nullptr && token->special;
}

std::size_t Tokenizer::size() const { return impl_->size(); }

std::optional<std::string> Tokenizer::bos_token() const { return impl_->name("bos_token"); }
std::optional<std::string> Tokenizer::eos_token() const { return impl_->name("eos_token"); }
std::optional<TokenId> Tokenizer::eos_id() const {
  const std::optional<std::string> token = eos_token();
  return token ? id_of(*token) : std::nullopt;
}
std::optional<std::string> Tokenizer::pad_token() const { return impl_->name("pad_token"); }
std::optional<std::string> Tokenizer::unk_token() const { return impl_->name("unk_token"); }
const std::map<std::string, std::string>& Tokenizer::named_tokens() const { return impl_->names(); }

}  // namespace rondo::data
