#include "decoder.h"

#include <utility>

#include "pre_tokenizer.h"
#include "utf8.h"

namespace rondo::data::tok {
namespace {

using Tokens = std::vector<std::string>;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The byte that a token like <0x0A> stands for, or -1.
int fallback_byte(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  const int high = token[3] == '+' ? 0 : hex_digit(token[3]);  // the reference reads a sign, too
  const int low = hex_digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

struct Decode {
  const Tokens& tokens;
  RegexScratch& scratch;

  Tokens operator()(const DecodeByteLevel& /*step*/) const {
    std::string bytes;
    std::string spelled;
    for (const std::string& token : tokens) bytes += bytes_of_token(token, spelled) ? spelled : token;
    return {lossy_utf8(bytes)};
  }

  Tokens operator()(const DecodeReplace& step) const {
    Tokens out;
    for (const std::string& token : tokens) {
      std::string& text = out.emplace_back();
      step.pattern.find(token, scratch, scratch.spans);
      for (const Span& span : scratch.spans) {
        text += span.match ? step.content : token.substr(span.begin, span.end - span.begin);
      }
    }
    return out;
  }

  Tokens operator()(const DecodeByteFallback& /*step*/) const {
    Tokens out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (is_utf8(bytes)) {
        out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
      }
      bytes.clear();
    };
    for (const std::string& token : tokens) {
      const int byte = fallback_byte(token);
      if (byte >= 0) {
        bytes.push_back(static_cast<char>(static_cast<unsigned char>(byte)));
        continue;
      }
      flush();
      out.push_back(token);
    }
    flush();
    return out;
  }

  Tokens operator()(const DecodeFuse& /*step*/) const {
    std::string text;
    for (const std::string& token : tokens) text += token;
    return {text};
  }

  Tokens operator()(const DecodeStrip& step) const {
    Tokens out;
    for (const std::string& token : tokens) {
      std::string_view text = token;
      const std::string_view content = step.content;
      for (std::size_t i = 0; i < step.start && text.substr(0, content.size()) == content; ++i) {
        text.remove_prefix(content.size());
      }
      for (std::size_t i = 0;
           i < step.stop && text.size() >= content.size() && text.substr(text.size() - content.size()) == content;
           ++i) {
        text.remove_suffix(content.size());
      }
      out.emplace_back(text);
    }
    return out;
  }

  Tokens operator()(const DecodeMetaspace& step) const {
    Tokens out;
    for (const std::string& token : tokens) {
      const bool drop = out.empty() && step.prepended;
      std::string& text = out.emplace_back();
      for (std::size_t i = 0; i < token.size();) {
        if (std::string_view(token).substr(i, step.replacement.size()) == step.replacement) {
          if (!drop) text += ' ';
          i += step.replacement.size();
        } else {
          text += token[i++];
        }
      }
    }
    return out;
  }
};

}  // namespace

std::string decode_tokens(const std::vector<Decoder>& decoders, std::vector<std::string> tokens) {
  RegexScratch scratch;
  for (const Decoder& step : decoders) tokens = std::visit(Decode{tokens, scratch}, step);
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

}  // namespace rondo::data::tok
