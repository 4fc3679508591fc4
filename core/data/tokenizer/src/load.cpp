#include "load.h"

#include <functional>
#include <utility>

#include "rondo/base/status.h"

namespace rondo::data::tok {
namespace {

constexpr int kDeepest = 16;  // sequences within sequences

using OnComponent = std::function<absl::Status(const Fields&, const std::string& type)>;

// Calls `on_component` for the components of `part` in order: itself, or what the sequences in it hold.
absl::Status for_each_component(const Fields& part, const char* members, int depth, const OnComponent& on_component) {
  if (part.value().is_null()) return absl::OkStatus();
  RONDO_ASSIGN_OR_RETURN(const std::string type, part.type());
  if (type != "Sequence") return on_component(part, type);
  if (depth >= kDeepest) return part.error("sequences are nested too deeply");
  RONDO_ASSIGN_OR_RETURN(const std::vector<Fields> parts, part.list(members));
  for (const Fields& inner : parts) {
    RONDO_RETURN_IF_ERROR(inner.expect_object());
    RONDO_RETURN_IF_ERROR(for_each_component(inner, members, depth + 1, on_component));
  }
  return absl::OkStatus();
}

absl::Status not_supported(const Fields& part, std::string_view type, std::string_view supported) {
  return part.error(fmt::format("the component '{}' is not supported; supported are {}", type, supported));
}

// {"String": "..."} or {"Regex": "..."}.
absl::StatusOr<Regex> load_pattern(const Fields& part) {
  const Fields pattern = part.member("pattern");
  RONDO_RETURN_IF_ERROR(pattern.expect_object());
  const bool literal = pattern.has("String");
  RONDO_ASSIGN_OR_RETURN(const std::string text, pattern.text(literal ? "String" : "Regex"));
  auto regex = literal ? Regex::literal(text) : Regex::compile(text);
  if (!regex.ok()) return with_context(regex.status(), pattern.where());
  return regex;
}

absl::StatusOr<SplitBehavior> load_behavior(const Fields& part) {
  RONDO_ASSIGN_OR_RETURN(const std::string name, part.text("behavior"));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return part.member("behavior").error(fmt::format("unknown behavior '{}'", name));
}

absl::StatusOr<Metaspace> load_metaspace(const Fields& part) {
  Metaspace step;
  RONDO_ASSIGN_OR_RETURN(step.replacement, part.character("replacement"));
  RONDO_ASSIGN_OR_RETURN(step.split, part.flag_or("split", true));
  std::string scheme = "always";
  if (part.has("prepend_scheme")) {
    RONDO_ASSIGN_OR_RETURN(scheme, part.text("prepend_scheme"));
  }
  if (scheme == "first") {
    step.prepend = Metaspace::Prepend::kFirst;
  } else if (scheme == "always") {
    step.prepend = Metaspace::Prepend::kAlways;
  } else if (scheme == "never") {
    step.prepend = Metaspace::Prepend::kNever;
  } else {
    return part.member("prepend_scheme").error(fmt::format("expected first, always or never, found '{}'", scheme));
  }
  RONDO_ASSIGN_OR_RETURN(const bool add_prefix_space, part.flag_or("add_prefix_space", true));
  if (!add_prefix_space && step.prepend != Metaspace::Prepend::kNever) {
    return part.member("add_prefix_space").error("false contradicts prepend_scheme");
  }
  return step;
}

absl::StatusOr<ByteLevel> load_byte_level(const Fields& part) {
  ByteLevel step;
  RONDO_ASSIGN_OR_RETURN(step.add_prefix_space, part.flag("add_prefix_space"));
  RONDO_ASSIGN_OR_RETURN(const bool use_regex, part.flag_or("use_regex", true));
  if (use_regex) {
    RONDO_ASSIGN_OR_RETURN(Regex words, byte_level_words());
    step.words = std::move(words);
  }
  return step;
}

absl::StatusOr<PreTokenizer> load_pre_tokenizer(const Fields& part, const std::string& type) {
  if (type == "ByteLevel") return load_byte_level(part);
  if (type == "Metaspace") return load_metaspace(part);
  if (type == "Digits") {
    RONDO_ASSIGN_OR_RETURN(const bool individual, part.flag("individual_digits"));
    return SplitDigits{individual};
  }
  if (type == "Whitespace") {
    RONDO_ASSIGN_OR_RETURN(Regex words, whitespace_words());
    return SplitWords{std::move(words)};
  }
  if (type == "Punctuation") {
    SplitPunctuation step;
    if (part.has("behavior")) {
      RONDO_ASSIGN_OR_RETURN(step.behavior, load_behavior(part));
    }
    return step;
  }
  if (type == "Split") {
    RONDO_ASSIGN_OR_RETURN(Regex pattern, load_pattern(part));
    RONDO_ASSIGN_OR_RETURN(const SplitBehavior behavior, load_behavior(part));
    RONDO_ASSIGN_OR_RETURN(const bool invert, part.flag("invert"));
    return SplitAt{std::move(pattern), behavior, invert};
  }
  return not_supported(part, type, "ByteLevel, Digits, Metaspace, Punctuation, Sequence, Split and Whitespace");
}

absl::StatusOr<Normalizer> load_normalizer(const Fields& part, const std::string& type) {
  if (type == "NFC") return NormalForm{NormalFormKind::kNfc};
  if (type == "NFD") return NormalForm{NormalFormKind::kNfd};
  if (type == "NFKC") return NormalForm{NormalFormKind::kNfkc};
  if (type == "NFKD") return NormalForm{NormalFormKind::kNfkd};
  if (type == "Lowercase") return Lowercase{};
  if (type == "Prepend") {
    RONDO_ASSIGN_OR_RETURN(std::string content, part.text("prepend"));
    return Prepend{std::move(content)};
  }
  if (type == "Replace") {
    RONDO_ASSIGN_OR_RETURN(Regex pattern, load_pattern(part));
    RONDO_ASSIGN_OR_RETURN(std::string content, part.text("content"));
    return Replace{std::move(pattern), std::move(content)};
  }
  if (type == "Strip") {
    Strip step;
    RONDO_ASSIGN_OR_RETURN(step.left, part.flag("strip_left"));
    RONDO_ASSIGN_OR_RETURN(step.right, part.flag("strip_right"));
    return step;
  }
  return not_supported(part, type, "Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence and Strip");
}

absl::StatusOr<Decoder> load_decoder(const Fields& part, const std::string& type) {
  if (type == "ByteLevel") return DecodeByteLevel{};
  if (type == "ByteFallback") return DecodeByteFallback{};
  if (type == "Fuse") return DecodeFuse{};
  if (type == "Replace") {
    RONDO_ASSIGN_OR_RETURN(Regex pattern, load_pattern(part));
    RONDO_ASSIGN_OR_RETURN(std::string content, part.text("content"));
    return DecodeReplace{std::move(pattern), std::move(content)};
  }
  if (type == "Strip") {
    DecodeStrip step;
    RONDO_ASSIGN_OR_RETURN(step.content, part.character("content"));
    RONDO_ASSIGN_OR_RETURN(step.start, part.count("start"));
    RONDO_ASSIGN_OR_RETURN(step.stop, part.count("stop"));
    return step;
  }
  if (type == "Metaspace") {
    RONDO_ASSIGN_OR_RETURN(const Metaspace step, load_metaspace(part));
    return DecodeMetaspace{step.replacement, step.prepend != Metaspace::Prepend::kNever};
  }
  return not_supported(part, type, "ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence and Strip");
}

}  // namespace

absl::StatusOr<std::vector<Normalizer>> load_normalizers(const Fields& part) {
  std::vector<Normalizer> steps;
  RONDO_RETURN_IF_ERROR(
      for_each_component(part, "normalizers", 0, [&](const Fields& inner, const std::string& type) -> absl::Status {
        RONDO_ASSIGN_OR_RETURN(Normalizer step, load_normalizer(inner, type));
        steps.push_back(std::move(step));
        return absl::OkStatus();
      }));
  return steps;
}

absl::StatusOr<PreTokenizers> load_pre_tokenizers(const Fields& part) {
  PreTokenizers steps;
  RONDO_RETURN_IF_ERROR(
      for_each_component(part, "pretokenizers", 0, [&](const Fields& inner, const std::string& type) -> absl::Status {
        RONDO_ASSIGN_OR_RETURN(PreTokenizer step, load_pre_tokenizer(inner, type));
        steps.steps.push_back(std::move(step));
        return absl::OkStatus();
      }));
  return steps;
}

absl::StatusOr<std::optional<std::vector<Decoder>>> load_decoders(const Fields& part) {
  if (part.value().is_null()) return std::optional<std::vector<Decoder>>();
  std::vector<Decoder> steps;
  RONDO_RETURN_IF_ERROR(
      for_each_component(part, "decoders", 0, [&](const Fields& inner, const std::string& type) -> absl::Status {
        RONDO_ASSIGN_OR_RETURN(Decoder step, load_decoder(inner, type));
        steps.push_back(std::move(step));
        return absl::OkStatus();
      }));
  return std::optional<std::vector<Decoder>>(std::move(steps));
}

absl::StatusOr<std::vector<PostProcessor>> load_post_processors(const Fields& part) {
  std::vector<PostProcessor> steps;
  RONDO_RETURN_IF_ERROR(
      for_each_component(part, "processors", 0, [&](const Fields& inner, const std::string& type) -> absl::Status {
        if (type == "TemplateProcessing") {
          RONDO_ASSIGN_OR_RETURN(Template step, load_template(inner));
          steps.emplace_back(std::move(step));
          return absl::OkStatus();
        }
        if (type != "ByteLevel") return not_supported(inner, type, "ByteLevel, Sequence and TemplateProcessing");
        RONDO_ASSIGN_OR_RETURN(const bool trim, inner.flag_or("trim_offsets", true));
        RONDO_ASSIGN_OR_RETURN(const bool prefix, inner.flag_or("add_prefix_space", true));
        if (trim) steps.emplace_back(TrimRanges{prefix});
        return absl::OkStatus();
      }));
  return steps;
}

}  // namespace rondo::data::tok
