// Losses out of line: which steps are spikes, and which samples a step saw.
//
// A spike is a loss above mean + 6 sigma of the last 50 losses and above 1.5 times their mean, once there are 20. It
// counts among the last losses afterwards, so that a course that stays up is told a few times and not for ever.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "rondo/train/trainer_state.h"

namespace rondo::train {

struct Spike {
  double mean = 0;   // of the losses before
  double sigma = 0;  // their standard deviation
  std::size_t losses = 0;
};

class LossWatch {
 public:
  /// Takes the loss of the next step.
  std::optional<Spike> take(double loss);
  /// Takes the losses of a resumed run's log_history, without judging them.
  void remember(const std::deque<LogEntry>& log_history);

 private:
  void keep(double loss);
  std::deque<double> last_;
};

/// Record numbers of a step's samples, by microbatch.
using StepRecords = std::vector<std::vector<std::uint64_t>>;

/// "records 3, 17 and 20 of chats.jsonl (counting from 0)"; of many the first 64 and how many more there are.
std::string describe_records(const std::vector<std::uint64_t>& records, const std::string& dataset);

/// "loss spike at step 37: 9.2100, after 2.3100 +- 0.0800 over the 50 steps before; the batch: records ..."
std::string describe_spike(std::uint64_t step, double loss, const Spike& spike, const StepRecords& records,
                           const std::string& dataset);

/// What of a step ("step 5", "evaluation after step 5") is not finite: the samples of the microbatches whose loss is
/// not, or the whole batch when all are or none is (the gradients are then at fault). `losses`: by microbatch, as far
/// as they are known.
std::string describe_not_finite(const std::string& what, const std::vector<double>& losses, const StepRecords& records,
                                const std::string& dataset);

}  // namespace rondo::train
