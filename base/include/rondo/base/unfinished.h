// What a process is building beside its place, for a signal handler that ends the process: destructors do not run then.
#pragma once

#include <atomic>
#include <filesystem>

namespace rondo {

/// While it lives a file, or a folder of files, counts as unfinished. Any thread. A process has room for sixty-four at
/// a time; what goes beyond is not counted.
class Unfinished {
 public:
  explicit Unfinished(const std::filesystem::path& path);
  Unfinished(Unfinished&& other) noexcept;
  Unfinished& operator=(Unfinished&&) = delete;
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished();

 private:
  std::atomic<char*>* place_ = nullptr;
  char* path_ = nullptr;  // what was put there
};

/// Removes all that is unfinished. For signal handlers, which then end the process: it only makes system calls. A
/// folder stays when it holds folders.
void remove_unfinished();

}  // namespace rondo
