// Runs the program as a user would.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace rondo::cli {

struct Outcome {
  int status = -1;  // exit status; 128 + n when signal n ended it
  std::string out;
  std::string err;
};

/// A started program, its output going to files of its own.
class Process {
 public:
  /// `folder`: where the files of its output lie; the program runs there too. `input`: the file that it reads from.
  Process(const std::vector<std::string>& arguments, const std::string& folder, const std::string& input = "/dev/null");
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void send(int signal) const;
  /// Waits for the end, at most 250 seconds: then it is killed and the status is that of SIGKILL.
  Outcome wait();
  /// What it has written so far.
  std::string err() const;
  /// Waits until standard error holds `text`; a test fails, and it is false, when the program ends without, or takes as
  /// long as wait() lets it.
  bool says(const std::string& text) const;

 private:
  bool has_ended() const;

  std::string out_path_;
  std::string err_path_;
  pid_t pid_ = -1;
};

Outcome run(const std::vector<std::string>& arguments, const std::string& folder);

std::string slurp(const std::string& path);

}  // namespace rondo::cli
