// What lies in a folder, without the exceptions that going on through one may throw.
#pragma once

#include <filesystem>
#include <system_error>
#include <vector>

namespace rondo {

/// As many as can be listed, in any order. `error`: why there are no others, cleared when these are all.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder, std::error_code& error);

}  // namespace rondo
