// What follows from the table of keys for other programs: the manual page and the completions of shells.
#pragma once

#include <string>

namespace rondo::train {

/// The manual page rondo.1 in roff (the man macros): every verb with its keys, defaults and an example.
std::string manual_page(const std::string& version);

/// The script that completes verbs, keys and the values of keys. `shell`: bash, zsh or fish; "" for any other.
std::string completion_script(const std::string& shell);

}  // namespace rondo::train
