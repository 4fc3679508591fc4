// How many steps a run has and how long its microbatches are: what a plan, the run itself and a sweep must agree on.
#include <algorithm>
#include <optional>

#include "rondo/base/status.h"
#include "rondo/train/session.h"

namespace rondo::train {

absl::StatusOr<std::uint64_t> steps_of_run(const Config& config, Loader& loader) {
  constexpr std::uint64_t kMostSteps = 10'000'000;
  const std::uint64_t steps =
      config.max_steps > 0 ? config.max_steps : loader.steps_of(config.num_train_epochs, kMostSteps + 1);
  if (steps <= kMostSteps) return steps;
  return invalid_input("max_steps: the run would have more than {} steps, which is the most; take fewer epochs",
                       kMostSteps);
}

std::optional<Loader> evaluation_loader(const Config& config, const RunData& data) {
  std::optional<Loader> loader;
  if (!data.evaluation.samples.empty()) loader.emplace(data.evaluation, evaluation_options(config));
  return loader;
}

Loader::Lengths lengths_of_run(Loader& loader, std::uint64_t steps, std::optional<Loader>& evaluation) {
  Loader::Lengths lengths = loader.lengths(steps);
  if (!evaluation) return lengths;
  const Loader::Lengths other = evaluation->lengths(evaluation->steps_per_epoch());
  lengths.longest = std::max(lengths.longest, other.longest);
  lengths.longest_sequence = std::max(lengths.longest_sequence, other.longest_sequence);
  lengths.buckets.insert(lengths.buckets.end(), other.buckets.begin(), other.buckets.end());
  std::ranges::sort(lengths.buckets);
  lengths.buckets.erase(std::unique(lengths.buckets.begin(), lengths.buckets.end()), lengths.buckets.end());
  return lengths;
}

}  // namespace rondo::train
