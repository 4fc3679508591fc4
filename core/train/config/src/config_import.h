// The translation of another program's configuration: a table of rules a program, and the state that they work on.
// Private to the configuration.
#pragma once

#include <yaml-cpp/yaml.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/train/config.h"
#include "rondo/train/import.h"

namespace rondo::train::config {

class Import {
 public:
  Import(const YAML::Node& root, std::string path) : root_(root), path_(std::move(path)) {}

  /// The value of one of their keys; undefined when it is not given.
  YAML::Node given(const std::string& theirs) const;
  /// Given, and neither null, false, empty nor "none".
  bool is_on(const std::string& theirs) const;
  /// A scalar's text; "" for anything else.
  std::string text(const std::string& theirs) const;
  const std::string& path() const { return path_; }

  /// Writes one of our keys for one of theirs; `why`: what a reader should know of the change. A value that our key
  /// refuses is told as not understood. False then.
  bool take(const std::string& theirs, const std::string& ours, const std::string& value, const std::string& why = {});
  /// A key that needs no translation.
  void leave_out(const std::string& theirs, const std::string& why);
  /// A key that matters and has no counterpart.
  void refuse(const std::string& theirs, const std::string& why);
  /// One of our keys that the file does not give, where their default is not ours.
  void assume(const std::string& ours, const std::string& value, const std::string& why);
  bool has(const std::string& ours) const { return values_.contains(ours); }

  const std::map<std::string, std::string>& values() const { return values_; }
  std::vector<ImportedKey> told() && { return std::move(told_); }

 private:
  void tell(const std::string& theirs, const char* outcome, std::string note);

  YAML::Node root_;
  std::string path_;
  Config checked_;
  std::map<std::string, std::string> values_;  // by our names
  std::vector<ImportedKey> told_;
};

/// How one of their keys is translated.
struct ImportRule {
  enum class Kind {
    kTake,      // the value means the same under `ours`
    kLeaveOut,  // has no bearing here: `why`
    kRefuse,    // has no counterpart: `why`; left out where it is off
    kBy,        // `translate`
  };
  Kind kind;
  std::vector<std::string> theirs;
  std::string ours = {};
  std::string why = {};
  void (*translate)(Import& import, const std::string& theirs) = nullptr;
};

/// A program: its rules and what its defaults ask for once all keys of the file are through.
struct ImportTool {
  const char* name;
  std::vector<std::string> marks;  // keys that no other program has
  std::vector<ImportRule> rules;
  void (*finish)(Import& import);
};
const ImportTool& axolotl();
const ImportTool& llama_factory();

/// What follows a message on an unknown key of the file `path`, where the file looks like one of another program that
/// has the key: "; `rondo import FILE` translates ..". Else "".
std::string import_hint(const YAML::Node& root, const std::string& path, const std::string& theirs);

/// A scalar's text, or that of a list's scalars with commas between them; "" for null and for maps.
std::string joined_text(const YAML::Node& node);
/// "none", "false", "null" and the like are off, whatever their case.
bool is_off(const std::string& text);

// Rules that both programs share.

/// Names of linear layers; a regular expression over their paths has no counterpart.
void take_targets(Import& import, const std::string& theirs);
/// optim, optimizer; lr_scheduler, lr_scheduler_type: the spellings that mean one of ours.
void translate_optimizer(Import& import, const std::string& theirs);
/// -1 means none elsewhere.
void translate_max_steps(Import& import, const std::string& theirs);
/// bf16, fp16 and their like.
void translate_dtype(Import& import, const std::string& theirs);
void translate_report(Import& import, const std::string& theirs);
/// save_strategy, eval_strategy: "steps" needs nothing, "no" no steps, "epoch" has no counterpart.
void translate_strategy(Import& import, const std::string& theirs);
void translate_resume(Import& import, const std::string& theirs);
/// Steps, but elsewhere a share of the run too.
void translate_steps(Import& import, const std::string& theirs);

}  // namespace rondo::train::config
