#include "loss_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace rondo::train {
namespace {

constexpr std::size_t kWindow = 50;
constexpr std::size_t kLeast = 20;
constexpr double kSigmas = 6.0;
constexpr double kRatio = 1.5;
constexpr std::size_t kMostRecords = 64;

std::vector<std::uint64_t> flat(const StepRecords& records) {
  std::vector<std::uint64_t> all;
  for (const auto& part : records) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

void LossWatch::keep(double loss) {
  last_.push_back(loss);
  if (last_.size() > kWindow) last_.pop_front();
}

std::optional<Spike> LossWatch::take(double loss) {
  std::optional<Spike> spike;
  if (last_.size() >= kLeast) {
    const auto n = static_cast<double>(last_.size());
    double mean = 0;
    for (const double value : last_) mean += value / n;
    double variance = 0;
    for (const double value : last_) variance += (value - mean) * (value - mean) / n;
    const double sigma = std::sqrt(variance);
    if (loss > mean + kSigmas * sigma && loss > kRatio * mean) spike = Spike{mean, sigma, last_.size()};
  }
  keep(loss);
  return spike;
}

void LossWatch::remember(const std::deque<LogEntry>& log_history) {
  for (const LogEntry& entry : log_history) {
    if (!entry.of_evaluation) keep(entry.loss);
  }
}

std::string describe_records(const std::vector<std::uint64_t>& records, const std::string& dataset) {
  std::string text = records.size() == 1 ? "record " : "records ";
  const std::size_t shown = std::min(records.size(), kMostRecords);
  for (std::size_t i = 0; i < shown; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", records[i]);
  if (shown < records.size()) text += fmt::format(" and {} more", records.size() - shown);
  return text + fmt::format(" of {} (counting from 0)", dataset);
}

std::string describe_spike(std::uint64_t step, double loss, const Spike& spike, const StepRecords& records,
                           const std::string& dataset) {
  return fmt::format("loss spike at step {}: {:.4f}, after {:.4f} +- {:.4f} over the {} losses before; its batch: {}",
                     step, loss, spike.mean, spike.sigma, spike.losses, describe_records(flat(records), dataset));
}

std::string describe_not_finite(const std::string& what, const std::vector<double>& losses, const StepRecords& records,
                                const std::string& dataset) {
  std::vector<std::uint64_t> bad;
  std::size_t parts = 0;
  for (std::size_t i = 0; i < std::min(losses.size(), records.size()); ++i) {
    if (std::isfinite(losses[i])) continue;
    bad.insert(bad.end(), records[i].begin(), records[i].end());
    ++parts;
  }
  if (parts == 0) {
    return fmt::format("{}: every loss is finite, a gradient is not; its batch: {}", what,
                       describe_records(flat(records), dataset));
  }
  if (parts == records.size() && parts > 1) {
    return fmt::format("{}: no loss is finite, so that the weights are likelier at fault than a sample; its batch: {}",
                       what, describe_records(bad, dataset));
  }
  return fmt::format("{}: the loss is not finite in {} of {} microbatches: {}", what, parts, records.size(),
                     describe_records(bad, dataset));
}

}  // namespace rondo::train
