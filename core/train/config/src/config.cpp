// The command line: a configuration file and flags, in that order.
#include "rondo/train/config.h"

#include <utility>

#include "config_keys.h"
#include "rondo/base/status.h"
#include "rondo/train/config_text.h"

namespace rondo::train {
namespace {

using config::Key;
using config::Origins;

/// A flag as it was typed.
struct Flag {
  std::string spelled;  // "--max-steps"
  const Key* key = nullptr;
  std::string value;
  bool has_value = false;
};

struct CommandLine {
  std::string file;
  std::vector<std::string> names;  // of runs
  std::vector<Flag> flags;
};

bool is_flag(const std::string& argument) { return argument.size() > 2 && argument.starts_with("--"); }

/// What `--key` means when nothing follows: `true`, for the keys that know it.
bool means_true_alone(const Key& key) {
  if (std::holds_alternative<bool Config::*>(key.member)) return true;
  for (const auto& [spelled, meant] : key.spellings) {
    if (spelled == "true") return true;
  }
  return false;
}

/// The flag at arguments[at]; advances `at` past a value that belongs to it.
absl::StatusOr<Flag> read_flag(const std::string& verb, const std::vector<std::string>& arguments, std::size_t& at) {
  const std::string& argument = arguments[at];
  const std::size_t equals = argument.find('=');
  Flag flag;
  flag.spelled = argument.substr(0, equals);
  const std::string name = config::normalised(flag.spelled.substr(2));
  flag.key = name.empty() ? nullptr : config::find_key(config::verb_bit(verb), name);
  if (flag.key == nullptr) {
    return config::unknown_key(verb, config::printable(flag.spelled), name);
  }
  if (equals != std::string::npos) {
    flag.value = argument.substr(equals + 1);
    flag.has_value = true;
    return flag;
  }
  const bool is_switch = std::holds_alternative<bool Config::*>(flag.key->member);
  const bool follows = at + 1 < arguments.size() && !is_flag(arguments[at + 1]);
  // A switch takes the next word only when it is a boolean, so that `--json run.yaml` names a file.
  if (follows && (!is_switch || config::is_boolean(arguments[at + 1]))) {
    flag.value = arguments[++at];
    flag.has_value = true;
  }
  return flag;
}

absl::StatusOr<CommandLine> split(const std::string& verb, const std::vector<std::string>& arguments) {
  CommandLine line;
  bool has_file = false;
  const Key* const bare = config::bare_key(config::verb_bit(verb));
  for (std::size_t at = 0; at < arguments.size(); ++at) {
    const std::string& argument = arguments[at];
    if (is_flag(argument)) {
      RONDO_ASSIGN_OR_RETURN(Flag flag, read_flag(verb, arguments, at));
      line.flags.push_back(std::move(flag));
      continue;
    }
    if (argument.empty() || argument[0] == '-') {
      return invalid_input("{}: expected --key value or a configuration file; `rondo help {}` lists the keys",
                           config::in_quotes(argument), verb);
    }
    if ((config::verb_bit(verb) & (config::kRuns | config::kReport)) != 0) {
      line.names.push_back(argument);
      continue;
    }
    if (bare != nullptr) {
      if (has_file) {
        return invalid_input("{}: expected one word, found this one more; is a -- missing?",
                             config::in_quotes(argument));
      }
      line.flags.push_back({bare->name, bare, argument, true});
      has_file = true;
      continue;
    }
    if (has_file) {
      return invalid_input("{}: expected one configuration file, found this one after {}; is a -- missing?",
                           config::in_quotes(argument), config::in_quotes(line.file));
    }
    line.file = argument;
    has_file = true;
  }
  return line;
}

absl::Status apply(const Flag& flag, Config& config, Origins& origins) {
  origins[flag.key->name] = flag.spelled;
  if (flag.has_value) return config::set_value(*flag.key, flag.value, flag.spelled, config);
  if (means_true_alone(*flag.key)) return config::set_value(*flag.key, "true", flag.spelled, config);
  return invalid_input("{}: expected {}, found no value; a value that begins with -- is written {}=VALUE", flag.spelled,
                       config::expectation(*flag.key), flag.spelled);
}

}  // namespace

absl::StatusOr<Config> parse_arguments(const std::string& verb, const std::vector<std::string>& arguments) {
  if (config::verb_bit(verb) == 0) return invalid_input("{}: unknown verb", config::in_quotes(verb));
  RONDO_ASSIGN_OR_RETURN(const CommandLine line, split(verb, arguments));
  Config config;
  Origins origins;
  config.run_names = line.names;
  if (!line.file.empty()) RONDO_RETURN_IF_ERROR(config::read_yaml(verb, line.file, config, origins));
  for (const Flag& flag : line.flags) RONDO_RETURN_IF_ERROR(apply(flag, config, origins));
  RONDO_RETURN_IF_ERROR(config::check_together(verb, config, origins));
  return config;
}

}  // namespace rondo::train
