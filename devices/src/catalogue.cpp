// Catalogues of cards and host machines: the built-in table and users' YAML files.
//
//   file  = { name: entry, ... }                 entry = { key: value, ... }, keys: see read_card(), read_host()
//   flops = { dtype: FLOP/s, ... }               dtype = bf16 | fp16 | fp32 | fp64 | fp8
#include "catalogue.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <numeric>
#include <string_view>

#include "rondo/base/status.h"
#include "rondo/yaml/document.h"

namespace rondo::devices {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

/// The `count` names nearest to `name`, joined by commas.
std::string nearest(const std::string& name, std::vector<std::string> known, std::size_t count) {
  std::stable_sort(known.begin(), known.end(), [&name](const std::string& a, const std::string& b) {
    return edit_distance(name, a) < edit_distance(name, b);
  });
  known.resize(std::min(known.size(), count));
  return fmt::format("{}", fmt::join(known, ", "));
}

/// The first key that stands twice in a map: yaml-cpp hands out the first of them and says nothing.
absl::Status check_once(const YAML::Node& map, const std::string& place) {
  std::map<std::string, int> lines;
  for (const auto& pair : map) {
    const auto key = pair.first.as<std::string>();
    const int line = pair.first.Mark().line + 1;
    const auto [first, is_new] = lines.emplace(key, line);
    if (is_new) continue;
    return invalid_input("{}: '{}' is given twice, in lines {} and {}; leave one of them", place, key, first->second,
                         line);
  }
  return absl::OkStatus();
}

/// With less a step would take more seconds than a number holds.
constexpr double kLeastEfficiency = 1e-9;
constexpr double kLeastSpeed = 1e-9;  // per second

/// Room for a value of exactly 0 in Entry::number's open lower end.
constexpr double kFromZero = -std::numeric_limits<double>::min();

/// One entry of a YAML file. Reads values by key and remembers the first complaint.
class Entry {
 public:
  Entry(std::string place, const YAML::Node& node) : place_(std::move(place)), node_(node) {}

  absl::Status status() const { return status_; }
  const std::string& place() const { return place_; }

  void allow_only(const std::vector<std::string>& keys) {
    for (const auto& pair : node_) {
      const auto key = pair.first.as<std::string>();
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
        complain(fmt::format("unknown key '{}' in line {}; the nearest known one is '{}'", key,
                             pair.first.Mark().line + 1, nearest(key, keys, 1)));
      }
    }
  }
  /// `least` < value <= `most`. A key without `otherwise` must be there.
  double number(const std::string& key, double least, double most, const double* otherwise = nullptr) {
    const YAML::Node value = node_[key];
    if (!value && otherwise != nullptr) return *otherwise;
    if (!value) {
      complain(fmt::format("the key '{}' is missing", key));
      return least;
    }
    return number_of(value, key, least, most);
  }
  std::string text(const std::string& key) {
    const YAML::Node value = node_[key];
    if (!value) return "";
    if (value.IsScalar()) return value.as<std::string>();
    complain(fmt::format("'{}' must be a word", key));
    return "";
  }
  bool flag(const std::string& key) {
    const YAML::Node value = node_[key];
    bool flag = false;
    if (value && !YAML::convert<bool>::decode(value, flag)) complain(fmt::format("'{}' must be true or false", key));
    return flag;
  }
  void read_flops(DeviceProfile& card) {
    const YAML::Node value = node_["flops"];
    if (!value || !value.IsMap() || value.size() == 0) {
      complain("'flops' must be a map from dtype to FLOP/s, such as {bf16: 165e12, fp32: 82e12}");
      return;
    }
    if (const absl::Status once = check_once(value, place_ + ": flops"); !once.ok() && status_.ok()) status_ = once;
    for (const auto& pair : value) {
      const auto name = pair.first.as<std::string>();
      bool known = false;
      for (const DType dtype : {DType::kBfloat16, DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
        if (name != name_of(dtype)) continue;
        card.flops[dtype] = number_of(pair.second, "flops." + name, kLeastSpeed, kMost);
        known = true;
      }
      if (name == "fp8") {
        card.fp8_flops = number_of(pair.second, "flops.fp8", kLeastSpeed, kMost);
        known = true;
      }
      if (!known) complain(fmt::format("unknown dtype '{}' in 'flops'; known are bf16, fp16, fp32, fp64, fp8", name));
    }
  }
  void complain(const std::string& what) {
    if (status_.ok()) status_ = invalid_input("{}: {}", place_, what);
  }

  static constexpr double kMost = 1e18;

 private:
  double number_of(const YAML::Node& value, const std::string& key, double least, double most) {
    double number = std::numeric_limits<double>::quiet_NaN();
    if (!value.IsScalar() || !YAML::convert<double>::decode(value, number) || !(number > least) || !(number <= most)) {
      const std::string from = least < 0 ? "from 0" : fmt::format("over {}", least);
      complain(fmt::format("'{}' must be a number {} up to {}, found '{}'", key, from, most,
                           value.IsScalar() ? value.Scalar() : "a list or map"));
      return most;
    }
    return number;
  }

  const std::string place_;
  const YAML::Node node_;
  absl::Status status_;
};

/// `root`: the document of the file in `reference`.
absl::StatusOr<Entry> find_entry(const std::string& reference, const YAML::Node& root) {
  const std::size_t hash = reference.rfind('#');
  const std::string file = reference.substr(0, hash);
  const std::string name = reference.substr(hash + 1);
  if (!root.IsMap()) return invalid_input("{}: expected a map from names to entries", file);
  RONDO_RETURN_IF_ERROR(check_once(root, file));
  const YAML::Node node = root[name];
  if (!node) {
    std::vector<std::string> names;
    for (const auto& pair : root) names.push_back(pair.first.as<std::string>());
    return invalid_input("{}: has no entry '{}'; it has {}", file, name, nearest(name, names, 5));
  }
  if (!node.IsMap()) return invalid_input("{}#{}: expected a map from keys to values", file, name);
  RONDO_RETURN_IF_ERROR(check_once(node, reference));
  return Entry(reference, node);
}

absl::StatusOr<DeviceProfile> read_card(Entry& entry) {
  entry.allow_only({"flops", "memory_bytes", "memory_bandwidth", "link_up", "link_down", "link_latency", "efficiency",
                    "jitter", "weights_in_place", "root", "fail_at", "slow_at", "source"});
  DeviceProfile card;
  const std::string& reference = entry.place();
  card.name = reference.substr(reference.rfind('#') + 1);
  entry.read_flops(card);
  card.memory_bytes = static_cast<Bytes>(std::ceil(entry.number("memory_bytes", 0, Entry::kMost)));
  card.memory_bandwidth = entry.number("memory_bandwidth", kLeastSpeed, Entry::kMost);
  card.link_up = entry.number("link_up", kLeastSpeed, Entry::kMost);
  card.link_down = entry.number("link_down", kLeastSpeed, Entry::kMost);
  card.link_latency_seconds = entry.number("link_latency", kFromZero, 3600, &card.link_latency_seconds);
  card.efficiency = entry.number("efficiency", kLeastEfficiency, 1, &card.efficiency);
  card.jitter = entry.number("jitter", kFromZero, 1, &card.jitter);
  card.weights_in_place = entry.flag("weights_in_place");
  card.root = entry.text("root");
  card.fail_at = entry.text("fail_at");
  card.slow_at = entry.text("slow_at");
  card.source = entry.text("source");
  if (card.source.empty()) card.source = reference;
  if (const auto failure = parse_failure(card.fail_at); !failure.ok()) {
    return with_context(failure.status(), reference + ": fail_at");
  }
  if (const auto slowdown = parse_slowdown(card.slow_at); !slowdown.ok()) {
    return with_context(slowdown.status(), reference + ": slow_at");
  }
  RONDO_RETURN_IF_ERROR(entry.status());
  return card;
}

absl::StatusOr<HostProfile> read_host(Entry& entry) {
  entry.allow_only({"memory_bytes", "memory_bandwidth", "optimizer_parameters_per_second", "disk_bandwidth"});
  HostProfile host;
  host.memory_bytes = static_cast<Bytes>(std::ceil(entry.number("memory_bytes", 0, Entry::kMost)));
  host.memory_bandwidth = entry.number("memory_bandwidth", kLeastSpeed, Entry::kMost);
  host.optimizer_parameters_per_second = entry.number("optimizer_parameters_per_second", kLeastSpeed, Entry::kMost);
  host.disk_bandwidth = entry.number("disk_bandwidth", kFromZero, Entry::kMost, &host.disk_bandwidth);
  RONDO_RETURN_IF_ERROR(entry.status());
  return host;
}

/// What `read` makes of the entry that `reference` names.
template <typename T>
absl::StatusOr<T> read_reference(const std::string& reference, absl::StatusOr<T> (*read)(Entry&)) {
  return yaml::read_document(reference.substr(0, reference.rfind('#')),
                             [&](const YAML::Node& root) -> absl::StatusOr<T> {
                               RONDO_ASSIGN_OR_RETURN(Entry entry, find_entry(reference, root));
                               return read(entry);
                             });
}

absl::Status failure_grammar(const std::string& text) {
  return invalid_input(
      "'{}': expected KIND@QUEUE:NUMBER or KIND@SECONDSs with KIND error, hang or corrupt, QUEUE compute, up or down, "
      "such as error@compute:17 or hang@2.5s",
      text);
}

}  // namespace

double DeviceProfile::speed(DType dtype, bool fp8) const {
  if (fp8 && fp8_flops > 0) return fp8_flops * efficiency;
  auto found = flops.find(dtype);
  if (found == flops.end()) found = flops.find(DType::kFloat32);
  return found == flops.end() ? 0 : found->second * efficiency;
}

double DeviceProfile::seconds(const OpCost& cost, DType dtype, bool fp8) const {
  const double rate = speed(dtype, fp8);
  const double arithmetic = rate > 0 ? cost.flops / rate : 0;
  if (memory_bandwidth <= 0) return arithmetic;
  return std::max(arithmetic, cost.bytes / memory_bandwidth) + cost.conversion_bytes / memory_bandwidth;
}

void DeviceProfile::slow_down(double factor) {
  for (auto& entry : flops) entry.second /= factor;
  fp8_flops /= factor;
  memory_bandwidth /= factor;
}

absl::StatusOr<FailurePlan> parse_failure(const std::string& text) {
  FailurePlan plan;
  if (text.empty()) return plan;
  const std::size_t at = text.find('@');
  if (at == std::string::npos) return failure_grammar(text);
  const std::string kind = text.substr(0, at);
  const std::string moment = text.substr(at + 1);
  if (kind == "error") {
    plan.kind = FailurePlan::Kind::kError;
  } else if (kind == "hang") {
    plan.kind = FailurePlan::Kind::kHang;
  } else if (kind == "corrupt") {
    plan.kind = FailurePlan::Kind::kCorrupt;
  } else {
    return failure_grammar(text);
  }
  char* end = nullptr;
  const std::size_t colon = moment.find(':');
  if (colon == std::string::npos) {
    plan.at_seconds = std::strtod(moment.c_str(), &end);
    const bool number = end != moment.c_str() && std::isfinite(plan.at_seconds) && plan.at_seconds >= 0;
    if (!number || std::string_view(end) != "s") return failure_grammar(text);
    return plan;
  }
  plan.queue = moment.substr(0, colon);
  const std::string number = moment.substr(colon + 1);
  const bool digits = !number.empty() && number.size() < 19 && std::all_of(number.begin(), number.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
  if (!digits || (plan.queue != "compute" && plan.queue != "up" && plan.queue != "down")) return failure_grammar(text);
  plan.at_work = std::strtoull(number.c_str(), nullptr, 10);
  if (plan.at_work == 0) return failure_grammar(text);
  return plan;
}

absl::StatusOr<Slowdown> parse_slowdown(const std::string& text) {
  Slowdown slowdown;
  if (text.empty()) return slowdown;
  const absl::Status grammar = invalid_input(
      "'{}': expected FACTORx@compute:FIRST or FACTORx@compute:FIRST-LAST, such as 2x@compute:40 or 1.5x@compute:40-90",
      text);
  char* end = nullptr;
  slowdown.factor = std::strtod(text.c_str(), &end);
  constexpr std::string_view kQueue = "x@compute:";
  const bool number = end != text.c_str() && std::isfinite(slowdown.factor) && slowdown.factor > 0;
  if (!number || !std::string_view(end).starts_with(kQueue)) return grammar;
  const std::string range = end + kQueue.size();
  const auto whole = [](const std::string& digits) {
    return !digits.empty() && digits.size() < 19 &&
           std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  };
  const std::size_t dash = range.find('-');
  const std::string first = range.substr(0, dash);
  if (!whole(first) || (dash != std::string::npos && !whole(range.substr(dash + 1)))) return grammar;
  slowdown.first = std::strtoull(first.c_str(), nullptr, 10);
  slowdown.last = dash == std::string::npos ? ~std::uint64_t{0} : std::strtoull(range.c_str() + dash + 1, nullptr, 10);
  if (slowdown.first == 0 || slowdown.last < slowdown.first) return grammar;
  return slowdown;
}

const std::vector<DeviceProfile>& card_catalogue() {
  static const std::vector<DeviceProfile>* const cards = [] {
    auto* sorted = new std::vector<DeviceProfile>(built_in_cards());
    std::sort(sorted->begin(), sorted->end(),
              [](const DeviceProfile& a, const DeviceProfile& b) { return a.name < b.name; });
    return sorted;
  }();
  return *cards;
}

absl::StatusOr<DeviceProfile> find_card(const std::string& card) {
  if (card.find('#') != std::string::npos) return read_reference(card, read_card);
  std::vector<std::string> names;
  for (const DeviceProfile& known : card_catalogue()) {
    if (known.name == card) return known;
    names.push_back(known.name);
  }
  return invalid_input("no card '{}' in the catalogue; the nearest are {} (a card of your own: file.yaml#name)", card,
                       nearest(card, names, 3));
}

double HostProfile::update_seconds(double parameters) const {
  constexpr double kBytesPerParameter = 28;  // master, two moments and gradient read; master and moments written
  double seconds = 0;
  if (optimizer_parameters_per_second > 0) seconds = parameters / optimizer_parameters_per_second;
  if (memory_bandwidth > 0) seconds = std::max(seconds, kBytesPerParameter * parameters / memory_bandwidth);
  return seconds;
}

absl::StatusOr<HostProfile> load_host_profile(const std::string& reference) {
  if (reference.find('#') == std::string::npos) {
    return invalid_input("host '{}': expected file.yaml#name", reference);
  }
  return read_reference(reference, read_host);
}

}  // namespace rondo::devices
