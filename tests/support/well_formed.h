// Whether a text is well-formed XML, as far as pages need it: tags nest and close, attributes are quoted and named
// once, markup characters stand as entities.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::test {

/// What stands where, cut short; for messages.
inline std::string fault_at(std::string_view what, std::string_view text, std::size_t at) {
  return std::string(what) + ": " + std::string(text.substr(at, 60));
}

inline bool is_entity(std::string_view text, std::size_t at) {
  for (const std::string_view entity : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"}) {
    if (text.substr(at, entity.size()) == entity) return true;
  }
  return false;
}

/// The attributes of a tag (`name="value"`, parted by spaces); empty when nothing is wrong.
inline std::string attribute_fault(std::string_view tag) {
  std::set<std::string> names;
  std::size_t at = tag.find(' ');
  while (at != std::string_view::npos) {
    at = tag.find_first_not_of(" \n", at);
    if (at == std::string_view::npos) break;
    const std::size_t equals = tag.find('=', at);
    if (equals == std::string_view::npos || equals + 1 >= tag.size() || tag[equals + 1] != '"') {
      return fault_at("attribute without quotes", tag, at);
    }
    if (!names.insert(std::string(tag.substr(at, equals - at))).second) return fault_at("named twice", tag, at);
    const std::size_t end = tag.find('"', equals + 2);
    if (end == std::string_view::npos) return fault_at("open quotes", tag, at);
    for (std::size_t i = equals + 2; i < end; ++i) {
      if (tag[i] == '<' || (tag[i] == '&' && !is_entity(tag, i))) return fault_at("markup in a value", tag, i);
    }
    at = end + 1;
    if (at < tag.size() && tag[at] != ' ' && tag[at] != '\n') return fault_at("no space between attributes", tag, at);
  }
  return {};
}

/// Empty when the text is well-formed.
inline std::string xml_fault(std::string_view text) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '&' && !is_entity(text, at)) return fault_at("bare &", text, at);
    if (text[at] == '>') return fault_at("bare >", text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x20 && byte != '\n' && byte != '\t') return fault_at("control character", text, at);
    if (text[at] != '<') {
      ++at;
      continue;
    }
    const std::size_t end = text.find('>', at);
    if (end == std::string_view::npos) return fault_at("open tag", text, at);
    std::string_view tag = text.substr(at + 1, end - at - 1);
    at = end + 1;
    if (tag == "!DOCTYPE html") continue;
    if (tag.starts_with("/")) {
      if (open.empty() || open.back() != tag.substr(1)) return fault_at("closes what is not open", tag, 0);
      open.pop_back();
      continue;
    }
    const bool closed = tag.ends_with("/");
    if (closed) tag.remove_suffix(1);
    const std::string fault = attribute_fault(tag);
    if (!fault.empty()) return fault;
    if (!closed) open.emplace_back(tag.substr(0, tag.find(' ')));
  }
  return open.empty() ? std::string() : "never closed: " + open.back();
}

}  // namespace rondo::test
