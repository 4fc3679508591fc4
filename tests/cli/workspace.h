// A folder with a small model and data, to be broken in one place, and the law that every bad input obeys.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "program.h"

namespace rondo::cli {

using Words = std::vector<std::string>;

/// Holds `model` (made by `rondo init`), `chats.jsonl` and nothing else; commands run in it, so that names are
/// relative.
class Workspace {
 public:
  Workspace();
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  std::filesystem::path path(const std::string& name = {}) const { return folder_ / name; }
  std::string read(const std::string& name) const { return slurp(path(name).string()); }
  void write(const std::string& name, const std::string& text) const;
  /// Replaces the first `from` in a file; a test fails when it is not there.
  void edit(const std::string& name, const std::string& from, const std::string& to) const;
  /// The same in the JSON header of a safetensors file, whose length is set right again.
  void edit_header(const std::string& name, const std::string& from, const std::string& to) const;
  /// The file's last numbers are none.
  void end_not_finite(const std::string& name) const;
  void remove(const std::string& name) const { std::filesystem::remove_all(path(name)); }
  Outcome run(const Words& arguments) const { return cli::run(arguments, folder_.string()); }
  /// Every path below the folder with its contents.
  std::map<std::string, std::string> snapshot() const;

 private:
  std::filesystem::path folder_;
};

/// What a command that succeeds gives with --json.
nlohmann::json json_of(const Outcome& outcome);

/// Whether `rondo devices` lists one of that name.
bool has_device(const Workspace& workspace, const std::string& name);

/// The lines of `out`/metrics.jsonl.
std::vector<nlohmann::json> metrics_of(const Workspace& workspace, const std::string& out);

/// What `rondo eval` says of chats.jsonl in fp32 with the model that `of` names; 0, and a failure, when it does not end
/// well.
double eval_loss(const Workspace& workspace, const Words& of);

/// `rondo train` on the workspace's model and data into `out`, one short step on the CPU.
Words train(const Words& more = {});

/// One kind of bad input.
struct BadInput {
  const char* name;
  std::function<Words(const Workspace&)> prepare;  // breaks the workspace and says what to run
  Words named;                                     // what the message must name
};

inline void PrintTo(const BadInput& bad, std::ostream* stream) { *stream << bad.name; }

/// Exit 2, one line `error: ...` on standard error that names the culprit, nothing on standard output, no file made or
/// changed.
void expect_refusal(const BadInput& bad);

inline std::string name_of(const testing::TestParamInfo<BadInput>& info) { return info.param.name; }

/// The case of one command that needs nothing broken.
inline BadInput command(const char* name, Words arguments, Words named) {
  return {name, [arguments = std::move(arguments)](const Workspace&) { return arguments; }, std::move(named)};
}

}  // namespace rondo::cli
