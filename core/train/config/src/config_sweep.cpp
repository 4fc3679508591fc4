#include "rondo/train/config_sweep.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "rondo/base/status.h"

namespace rondo::train::config {
namespace {

constexpr std::string_view kBatch = "global_batch=";
constexpr std::string_view kDevicesAxis = "devices=";
constexpr std::uint32_t kMostMicrobatches = 1U << 20U;  // as of gradient_accumulation_steps
constexpr std::size_t kMostPoints = 256;

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// Where an axis begins: at the text's start, or behind a separator.
std::size_t find_axis(std::string_view text, std::string_view axis) {
  for (std::size_t at = text.find(axis); at != std::string_view::npos; at = text.find(axis, at + 1)) {
    if (at == 0 || text[at - 1] == ';' || text[at - 1] == ',') return at;
  }
  return std::string_view::npos;
}

/// From behind the axis' name to the other axis or the end.
std::string_view values_of(std::string_view text, std::string_view axis, std::string_view other) {
  const std::size_t begin = find_axis(text, axis);
  if (begin == std::string_view::npos) return {};
  const std::size_t next = find_axis(text, other);
  std::string_view values =
      text.substr(begin, next != std::string_view::npos && next > begin ? next - begin - 1 : std::string_view::npos);
  values.remove_prefix(axis.size());
  return values;
}

absl::StatusOr<std::uint32_t> counted(std::uint64_t sequences) {
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
  if (sequences <= kMost) return static_cast<std::uint32_t>(sequences);
  return invalid_input("global_batch: expected at most {} sequences, found {}", kMost, sequences);
}

absl::StatusOr<std::uint32_t> batch_of(std::string_view text, const Config& config) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::uint64_t size = config.per_device_train_batch_size;
  if (error != std::errc() || end != text.data() + text.size() || number == 0) {
    return invalid_input("global_batch: expected a number of sequences above 0, found '{}'", text);
  }
  if (number % size != 0) {
    return invalid_input("global_batch: expected multiples of per_device_train_batch_size {}, found {}", size, number);
  }
  if (number / size > kMostMicrobatches) {
    return invalid_input("global_batch: expected at most {} microbatches, found {}", kMostMicrobatches, number / size);
  }
  return counted(number);
}

}  // namespace

absl::StatusOr<Sweep> parse_sweep(const Config& config) {
  const std::string_view text = config.sweep;
  const bool begins = text.starts_with(kBatch) || text.starts_with(kDevicesAxis);
  if (!begins) return invalid_input("expected global_batch=N,... or devices=LIST|..., found '{}'", text);
  Sweep sweep;
  for (const std::string_view number : split(values_of(text, kBatch, kDevicesAxis), ',')) {
    if (find_axis(text, kBatch) == std::string_view::npos) break;
    RONDO_ASSIGN_OR_RETURN(const std::uint32_t batch, batch_of(number, config));
    sweep.global_batches.push_back(batch);
  }
  if (sweep.global_batches.empty()) {
    const std::uint64_t size = config.per_device_train_batch_size;
    RONDO_ASSIGN_OR_RETURN(const std::uint32_t batch, counted(size * config.gradient_accumulation_steps));
    sweep.global_batches = {batch};
  }
  std::ranges::sort(sweep.global_batches);
  const auto last = std::unique(sweep.global_batches.begin(), sweep.global_batches.end());
  sweep.global_batches.erase(last, sweep.global_batches.end());
  for (const std::string_view list : split(values_of(text, kDevicesAxis, kBatch), '|')) {
    if (find_axis(text, kDevicesAxis) == std::string_view::npos) break;
    if (list.empty()) return invalid_input("devices: expected lists between '|', found an empty one");
    sweep.devices.emplace_back(list);
  }
  if (sweep.devices.empty()) sweep.devices = {config.devices};
  const std::size_t points = sweep.global_batches.size() * sweep.devices.size();
  if (points > kMostPoints) return invalid_input("expected at most {} points, found {}", kMostPoints, points);
  return sweep;
}

}  // namespace rondo::train::config
