// Small helpers for text in values and messages. Private to the configuration.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::train::config {

/// Cut to a readable length, control characters and broken UTF-8 escaped.
std::string printable(std::string_view text);

/// The same in single quotes.
std::string in_quotes(std::string_view text);

/// The elements of a list with commas between them; none of an empty one.
std::vector<std::string> elements_of(std::string_view list);

/// The same as numbers; nothing when one of them is none.
std::optional<std::vector<double>> numbers_of(std::string_view list);

/// A YAML double-quoted scalar.
std::string yaml_quoted(const std::string& text);

/// In single quotes for a POSIX shell.
std::string shell_quoted(const std::string& text);

/// One word for a POSIX shell: quoted where it has to be.
std::string shell_word(const std::string& text);

}  // namespace rondo::train::config
