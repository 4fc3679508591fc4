// Looking keys up: by name and alias, and the nearest one to a misspelt key.
#include "config_keys.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "rondo/base/status.h"

namespace rondo::train {
namespace config {
namespace {

/// Insertions, deletions, changes and swaps of neighbours that lead from `a` to `b` (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

constexpr Verbs kReadsNoConfiguration = kInit | kImport | kCompletion | kMan | kRuns | kReport;

struct Near {
  const Key* key = nullptr;
  std::string spelled;  // the name or alias that is near
  bool far = false;     // but nobody who wrote the word will have meant it
};

/// One begins with the other: "lora_target_modules", "warmup".
bool extends(std::string_view wanted, std::string_view spelled) {
  return std::min(wanted.size(), spelled.size()) >= 5 && (wanted.starts_with(spelled) || spelled.starts_with(wanted));
}

/// The smallest distance, of which a third of the longer word may be; else a key that the word extends or abbreviates;
/// else the one that is least far.
Near nearest(Verbs verb, const std::string& word) {
  constexpr std::size_t kLongest = 64;
  const std::string wanted = word.substr(0, kLongest);
  Near best;
  Near extended;
  std::size_t best_distance = ~std::size_t{0};
  const auto consider = [&](const Key& key, const std::string& spelled) {
    if (extended.key == nullptr && extends(wanted, spelled)) extended = {&key, spelled};
    const std::size_t distance = edit_distance(wanted, spelled);
    if (distance >= best_distance) return;
    best_distance = distance;
    best = {&key, spelled, distance > std::max(wanted.size(), spelled.size()) / 3};
  };
  for (const Key& key : keys()) {
    if (!accepts(verb, key)) continue;
    consider(key, key.name);
    for (const std::string& alias : key.aliases) consider(key, alias);
  }
  return best.far && extended.key != nullptr ? extended : best;
}

}  // namespace

const std::vector<Key>& keys() {
  static const std::vector<Key> table = [] {
    std::vector<Key> all = training_keys();
    for (Key& key : other_keys()) all.push_back(std::move(key));
    return all;
  }();
  return table;
}

Verbs verb_bit(const std::string& verb) {
  static constexpr std::pair<const char*, Verb> kVerbs[] = {{"train", kTrain},       {"eval", kEval},
                                                            {"generate", kGenerate}, {"data", kData},
                                                            {"init", kInit},         {"merge", kMerge},
                                                            {"export", kExport},     {"devices", kDevices},
                                                            {"plan", kPlan},         {"profile", kProfile},
                                                            {"chat", kChat},         {"doctor", kDoctor},
                                                            {"import", kImport},     {"completion", kCompletion},
                                                            {"man", kMan},           {"runs", kRuns},
                                                            {"report", kReport}};
  for (const auto& [name, bit] : kVerbs) {
    if (verb == name) return bit;
  }
  return 0;
}

std::string normalised(std::string_view key) {
  std::string text(key);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

bool accepts(Verbs verb, const Key& key) {
  return (key.verbs & verb) != 0 || ((verb & kReadsNoConfiguration) == 0 && (key.verbs & kTrain) != 0);
}

const Key* find_key(Verbs verb, const std::string& spelled) {
  for (const Key& key : keys()) {
    if (accepts(verb, key) && key.name == spelled) return &key;
  }
  for (const Key& key : keys()) {
    if (accepts(verb, key) && std::count(key.aliases.begin(), key.aliases.end(), spelled) > 0) return &key;
  }
  return nullptr;
}

const Key* bare_key(Verbs verb) {
  for (const Key& key : keys()) {
    if (key.bare && (key.verbs & verb) != 0) return &key;
  }
  return nullptr;
}

absl::Status unknown_key(const std::string& verb, const std::string& origin, const std::string& spelled) {
  const auto has = [&](const std::string& other) {
    return std::ranges::any_of(
        keys(), [&](const Key& key) { return key.name == spelled && (key.verbs & verb_bit(other)) != 0; });
  };
  std::vector<std::string> others;  // verbs that have it, train alone where that does
  for (const std::string& other : verbs()) {
    if (has(other)) others.push_back(fmt::format("`rondo {}`", other));
  }
  if (has("train")) others = {"`rondo train`"};
  if (!others.empty()) {
    return invalid_input("{}: a key of {}, which `rondo {}` does not have; leave it out", origin,
                         fmt::join(others, " and "), verb);
  }
  const Near near = nearest(verb_bit(verb), spelled);
  if (near.key == nullptr || near.far) {
    const std::string name = near.key == nullptr ? "" : "the nearest one is " + near.key->name + ", and ";
    return invalid_input("{}: unknown key; {}`rondo help {}` lists those that there are", origin, name, verb);
  }
  if (near.spelled == near.key->name) return invalid_input("{}: unknown key; did you mean {}?", origin, near.spelled);
  return invalid_input("{}: unknown key; did you mean {} ({})?", origin, near.spelled, near.key->name);
}

}  // namespace config

const std::vector<std::string>& verbs() {
  static const std::vector<std::string> names = {"init",   "data",     "devices", "plan",       "profile", "train",
                                                 "eval",   "generate", "chat",    "merge",      "export",  "import",
                                                 "doctor", "runs",     "report",  "completion", "man"};
  return names;
}

}  // namespace rondo::train
