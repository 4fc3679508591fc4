// The microbatches of the step to come, made while the one before computes.
#pragma once

#include <cstdint>
#include <future>
#include <system_error>
#include <vector>

#include "rondo/train/loader.h"

namespace rondo::train {

/// For one thread; it takes the steps in rising order, up to `end`, which is not taken.
class BatchesAhead {
 public:
  /// `dataset` outlives this.
  BatchesAhead(const data::Dataset& dataset, const LoaderOptions& options, std::uint64_t end)
      : loader_(dataset, options), end_(end) {}

  /// Loader::step of `step`; from here on the one after it is made.
  std::vector<schedule::Microbatch> take(std::uint64_t step) {
    std::vector<schedule::Microbatch> batches = next_.valid() && next_step_ == step ? next_.get() : made_now(step);
    next_step_ = step + 1;
    if (next_step_ < end_) begin_next();
    return batches;
  }

 private:
  void begin_next() {
    try {
      next_ = std::async(std::launch::async, [this] { return loader_.step(next_step_); });
    } catch (const std::system_error&) {
      next_ = {};  // without a thread it is made when it is taken
    }
  }

  std::vector<schedule::Microbatch> made_now(std::uint64_t step) {
    if (next_.valid()) next_.wait();  // the loader is one thread's at a time
    return loader_.step(step);
  }

  Loader loader_;
  const std::uint64_t end_;
  std::uint64_t next_step_ = 0;
  std::future<std::vector<schedule::Microbatch>> next_;  // last: it is waited for before the loader goes
};

}  // namespace rondo::train
