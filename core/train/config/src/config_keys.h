// The table of keys: one entry says everything about a key, and parsing, checks, help pages, the resolved file and the
// suggestions for misspelt keys all follow from it. Private to the configuration.
//
// The table is built once and constant afterwards; every function is reentrant.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/train/config.h"

namespace rondo::train::config {

/// Verbs as bits.
enum Verb : unsigned {
  kTrain = 1,
  kEval = 2,
  kGenerate = 4,
  kData = 8,
  kInit = 16,
  kDevices = 32,
  kPlan = 64,
  kProfile = 128,
  kMerge = 256,
  kExport = 512,
  kRuns = 1024,
  kReport = 2048,
  kChat = 1U << 20U,
  kDoctor = 1U << 21U,
  kImport = 1U << 22U,
  kCompletion = 1U << 23U,
  kMan = 1U << 24U,
  kEvery = ~0U
};
using Verbs = unsigned;

using Member = std::variant<std::string Config::*, double Config::*, std::uint32_t Config::*, std::uint64_t Config::*,
                            bool Config::*>;

/// A range of numbers.
struct Range {
  double low = 0;
  double high = std::numeric_limits<double>::max();
  bool above_low = false;   // low itself is outside
  bool below_high = false;  // high itself is outside
};

struct Key {
  std::string name;
  std::vector<std::string> aliases = {};
  Verbs verbs = 0;  // whose help page shows it
  Member member;
  std::string group;
  std::string help;
  Range range = {};  // numbers
  /// Strings: the values that there are; empty: any. "" among them means that the key may be left empty.
  std::vector<std::string> choices = {};
  /// Other spellings of values, as other tools write them.
  std::vector<std::pair<std::string, std::string>> spellings = {};
  /// Known values that this build refuses; "*": any but the default.
  std::vector<std::string> unavailable = {};
  bool list = false;    // comma-separated; a YAML list is joined by commas
  bool map = false;     // a list of name=value; a YAML map is written so
  bool of_run = false;  // a whole number, or below 1 a share of the run's steps
  bool bare = false;    // a word without a flag is its value, for verbs that read no configuration file
};

const std::vector<Key>& keys();

/// Parts of the table (config_table.cpp).
std::vector<Key> training_keys();
std::vector<Key> other_keys();

/// 0 for an unknown verb.
Verbs verb_bit(const std::string& verb);

/// A verb as help pages, the manual and completions tell of it.
struct VerbHelp {
  const char* name;
  const char* summary;
  const char* arguments;
  const char* example;
};
const std::vector<VerbHelp>& verb_helps();

/// `-` as `_`.
std::string normalised(std::string_view key);

/// A key may be given to a verb when the verb's page shows it; training keys to every verb that reads a configuration,
/// so that one file serves all of them.
bool accepts(Verbs verb, const Key& key);

/// The key that `spelled` means for `verb`: by name, then by alias. Null when there is none.
const Key* find_key(Verbs verb, const std::string& spelled);

/// The key whose value is the verb's bare word; null where that word is a configuration file.
const Key* bare_key(Verbs verb);

/// What a key's value must be, for messages and help: "a whole number from 1 to 65536".
std::string expectation(const Key& key);

/// The value as text that set_value reads back.
std::string value_text(const Config& config, const Key& key);

/// Parses and range-checks `text`. `origin` ("run.yaml:3: seed", "--seed") begins the message.
absl::Status set_value(const Key& key, std::string_view text, const std::string& origin, Config& config);

/// Where the keys that were given stand, by name: "run.yaml:3: seed", "--seed".
using Origins = std::map<std::string, std::string>;

/// "did you mean lora_rank?" or where to look; what follows an unknown key in a message.
absl::Status unknown_key(const std::string& verb, const std::string& origin, const std::string& spelled);

/// Reads a YAML file of keys into `config`.
absl::Status read_yaml(const std::string& verb, const std::string& path, Config& config, Origins& origins);

/// Values against each other and what `verb` cannot do without.
absl::Status check_together(const std::string& verb, const Config& config, const Origins& origins);

/// True for "true", "no", "1", ...: what a flag without `=` takes as its boolean value.
bool is_boolean(std::string_view text);

}  // namespace rondo::train::config
