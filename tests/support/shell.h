// Commands of the shell, with all that they write.
#pragma once

#include <cstdio>
#include <string>

namespace rondo::test {

struct Shown {
  int status = -1;  // as wait() gives it; 0: the command succeeded
  std::string output;
};

/// What a shell command writes on both streams. Not in the user's language: of one that the machine lacks bash
/// complains.
inline Shown shell(const std::string& command) {
  Shown shown;
  std::FILE* pipe = ::popen(("{ export LC_ALL=C; " + command + "; } 2>&1").c_str(), "r");
  if (pipe == nullptr) return shown;
  char buffer[4096];
  for (std::size_t got = 0; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) shown.output.append(buffer, got);
  shown.status = ::pclose(pipe);
  return shown;
}

}  // namespace rondo::test
