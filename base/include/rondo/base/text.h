// Small helpers for text that people wrote.
#pragma once

#include <string_view>

namespace rondo {

/// Without spaces and tabs at both ends; a view into `text`.
std::string_view trimmed(std::string_view text);

}  // namespace rondo
