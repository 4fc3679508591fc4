// Small helpers for text in values and messages. Private to the configuration.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::train::config {

/// Without spaces and tabs at both ends.
std::string_view trimmed(std::string_view text);

/// Cut to a readable length, control characters and broken UTF-8 escaped.
std::string printable(std::string_view text);

/// The same in single quotes.
std::string in_quotes(std::string_view text);

/// Whole, shortest-form UTF-8 without surrogates.
bool is_utf8(std::string_view text);

/// The elements of a list with commas between them; none of an empty one.
std::vector<std::string> elements_of(std::string_view list);

/// The same as numbers; nothing when one of them is none.
std::optional<std::vector<double>> numbers_of(std::string_view list);

}  // namespace rondo::train::config
