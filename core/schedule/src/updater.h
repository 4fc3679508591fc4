// The optimizer's thread: updates parameter by parameter, in the order in which the next step needs them, while that
// step already begins.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "rondo/base/mutex.h"
#include "rondo/offload/optimizer.h"
#include "rondo/offload/parameter_store.h"

namespace rondo::schedule {

class Updater {
 public:
  /// Told by its thread of an update that fails, before who waits for that goes on.
  using OnError = std::function<void(const absl::Status&)>;

  /// `order`: the trained parameters. `parameters` outlives the updater.
  Updater(std::vector<offload::ParameterId> order, offload::ParameterStore& parameters, OnError on_error);
  /// Before all else. Errors: ResourceExhausted when there is no thread for it.
  absl::Status open();
  /// Waits for an update that has begun.
  ~Updater();
  Updater(const Updater&) = delete;
  Updater& operator=(const Updater&) = delete;

  /// Begins the next update when the last one has ended. `optimizer` outlives it.
  void start(offload::HostOptimizer& optimizer, const offload::StepFactors& factors);
  /// Waits for the last update, on disk too.
  void drain_and_wait();
  /// Not OK when an update could not be finished.
  absl::Status status() const;

  /// That have begun; settable while none is under way.
  std::uint64_t updates() const;
  void set_updates(std::uint64_t updates);

 private:
  void loop();
  absl::Status update_all(offload::HostOptimizer& optimizer, const offload::StepFactors& factors,
                          std::uint64_t version) const;

  const std::vector<offload::ParameterId> order_;
  offload::ParameterStore& parameters_;
  const OnError on_error_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool updating_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t updates_ ABSL_GUARDED_BY(mutex_) = 0;
  offload::HostOptimizer* optimizer_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the update under way
  offload::StepFactors factors_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace rondo::schedule
