// Rendering of samples and reports. Text is cut at run boundaries by decoding prefixes, because a decoder may treat the
// first token of a text differently (a leading space is dropped) and a character may span tokens.
#include "rondo/data/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace rondo::data {
namespace {

constexpr std::string_view kTargetColour = "\x1b[32m";
constexpr std::string_view kMaskedColour = "\x1b[2m";
constexpr std::string_view kPlainColour = "\x1b[0m";
constexpr std::string_view kTargetOpen = "\u27e6";
constexpr std::string_view kTargetClose = "\u27e7";

/// Bytes of `whole` that the first `tokens` tokens stand for: complete characters only.
std::size_t text_length(const Tokenizer& tokenizer, const Sample& sample, std::size_t tokens, std::string_view whole) {
  if (tokens == sample.ids.size()) return whole.size();
  const std::string head = tokenizer.decode(std::span(sample.ids).first(tokens), false);
  const std::size_t most = std::min(head.size(), whole.size());
  std::size_t common = 0;
  while (common < most && head[common] == whole[common]) ++common;
  while (common > 0 && common < whole.size() && (static_cast<unsigned char>(whole[common]) & 0xC0U) == 0x80U) --common;
  return common;
}

std::string printable(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20U && c != '\n' && c != '\t') || byte == 0x7FU) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += c;
    }
  }
  return shown;
}

}  // namespace

std::string describe_sample(const Tokenizer& tokenizer, const Sample& sample, bool colour) {
  const std::string whole = tokenizer.decode(sample.ids, false);
  std::string shown;
  std::size_t text_begin = 0;
  for (std::size_t begin = 0; begin < sample.ids.size();) {
    const bool target = sample.labels[begin] != kMasked;
    std::size_t end = begin + 1;
    while (end < sample.ids.size() && (sample.labels[end] != kMasked) == target) ++end;
    const std::size_t text_end = std::max(text_begin, text_length(tokenizer, sample, end, whole));
    const std::string text = printable(std::string_view(whole).substr(text_begin, text_end - text_begin));
    if (colour) {
      shown += fmt::format("{}{}{}", target ? kTargetColour : kMaskedColour, text, kPlainColour);
    } else {
      shown += target ? fmt::format("{}{}{}", kTargetOpen, text, kTargetClose) : text;
    }
    begin = end;
    text_begin = text_end;
  }
  return shown;
}

nlohmann::ordered_json sample_json(const Sample& sample) {
  nlohmann::ordered_json json;
  json["input_ids"] = sample.ids;
  json["labels"] = sample.labels;
  return json;
}

namespace {

std::string describe_set(const DataReport& report) {
  std::string text = fmt::format("{}: {}, {}, {} records, {} kept; {} tokens, {} targets, longest sample {} tokens",
                                 report.path, report.format, report.container, report.records, report.kept,
                                 report.tokens, report.target_tokens, report.longest);
  if (!report.parts.empty()) return text;  // the rest is said of each
  if (!report.prepared.empty()) {
    text += fmt::format("\ntokens {} {}", report.reused ? "taken from" : "written to", report.prepared);
  }
  if (report.truncated > 0) {
    text += report.truncated == 1 ? std::string("\n1 sample was cut to cutoff_len")
                                  : fmt::format("\n{} samples were cut to cutoff_len", report.truncated);
  }
  if (report.without_target > 0) {
    text +=
        fmt::format("\n{} no target and {} left out: record {}",
                    report.without_target == 1 ? "1 sample has" : fmt::format("{} samples have", report.without_target),
                    report.without_target == 1 ? "is" : "are", fmt::join(report.first_without_target, ", "));
    if (report.without_target > report.first_without_target.size()) text += ", ...";
  }
  if (report.dropped_symbols > 0) {
    text += fmt::format("\n{} symbols are not in the vocabulary and were left out", report.dropped_symbols);
  }
  return text;
}

}  // namespace

std::string describe_report(const DataReport& report) {
  std::string text = describe_set(report);
  double epoch = 0;  // tokens
  for (const DataReport& part : report.parts) epoch += part.weight * static_cast<double>(part.tokens);
  for (const DataReport& part : report.parts) {
    const double share = epoch > 0 ? part.weight * static_cast<double>(part.tokens) / epoch : 0;
    text += fmt::format("\nweight {}, {:.1f}% of the tokens: {}", part.weight, 100 * share, describe_set(part));
  }
  return text;
}

}  // namespace rondo::data
