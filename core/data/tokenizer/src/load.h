// tokenizer.json taken apart: one function for each of its parts.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "added_tokens.h"
#include "bpe.h"
#include "decoder.h"
#include "json_fields.h"
#include "normalizer.h"
#include "post_processor.h"
#include "pre_tokenizer.h"

namespace rondo::data::tok {

/// The model's part: how words become ids, and how the file spells each id (empty where it has none).
struct Model {
  Bpe bpe;
  std::vector<std::string> spellings;
};

// Each reads one member of the file's top object. Errors: InvalidArgument naming the place in the file and what is
// missing, malformed or not supported.
absl::StatusOr<std::vector<Normalizer>> load_normalizers(const Fields& part);
absl::StatusOr<PreTokenizers> load_pre_tokenizers(const Fields& part);
absl::StatusOr<std::vector<PostProcessor>> load_post_processors(const Fields& part);
/// Nothing when the file has no decoder: tokens are then joined by blanks.
absl::StatusOr<std::optional<std::vector<Decoder>>> load_decoders(const Fields& part);
/// A TemplateProcessing: what it does to a single text.
absl::StatusOr<Template> load_template(const Fields& part);
absl::StatusOr<Model> load_model(const Fields& part, bool byte_symbols);
/// `part` is the array added_tokens. Their ids follow from the model, as the library numbers them, not from the file.
absl::StatusOr<AddedTokens> load_added_tokens(const Fields& top, const Bpe& model,
                                              const std::vector<Normalizer>& normalizers);

}  // namespace rondo::data::tok
