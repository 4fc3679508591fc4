// Finds devices that compute at another pace than the plan takes them to.
//
// What counts is how the devices stand to each other: a plan is right when all of them take the same multiple of what
// it says. A device that falls behind the others by a third for three steps, or catches up with them as much, has
// changed; what is shorter is left alone, so that a plan is not made anew for every hiccup. Where even the quickest
// device takes far longer than the plan says, the plan does not describe the pool and says nothing about its balance.
// Thread rule: one caller. Nothing allocates after construction.
#pragma once

#include <cstdint>
#include <vector>

namespace rondo::schedule {

class PaceWatch {
 public:
  explicit PaceWatch(std::size_t devices)
      : factors_(devices, 1.0), before_(factors_), now_(devices, 0.0), sums_(devices, 0.0) {}

  /// After a step, by device: seconds that it computed, and would have by its profile (0: it has no slots). True when
  /// factors() are others than before.
  bool step(const std::vector<double>& measured, const std::vector<double>& by_profile);

  /// By device: how much longer it takes than its profile says, the quickest one standing for 1.
  const std::vector<double>& factors() const { return factors_; }
  /// Those before the last change.
  const std::vector<double>& factors_before() const { return before_; }

  static constexpr double kOff = 1.3;         // a change that counts
  static constexpr std::uint32_t kSteps = 3;  // in a row
  static constexpr double kDescribed = 1.5;   // of the quickest device: how far it may be from its profile

 private:
  void forget();

  std::vector<double> factors_;
  std::vector<double> before_;
  std::vector<double> now_;   // of this step
  std::vector<double> sums_;  // of the steps in a row
  std::uint32_t in_a_row_ = 0;
};

}  // namespace rondo::schedule
