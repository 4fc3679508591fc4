#include "updater.h"

#include <utility>

#include "rondo/base/status.h"
#include "rondo/base/thread.h"

namespace rondo::schedule {

Updater::Updater(std::vector<offload::ParameterId> order, offload::ParameterStore& parameters, OnError on_error)
    : order_(std::move(order)), parameters_(parameters), on_error_(std::move(on_error)) {}

absl::Status Updater::open() {
  RONDO_ASSIGN_OR_RETURN(thread_, start_thread("the optimizer", [this] { loop(); }));
  return absl::OkStatus();
}

Updater::~Updater() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Updater::start(offload::HostOptimizer& optimizer, const offload::StepFactors& factors) {
  const MutexLock lock(mutex_);
  while (updating_) changed_.wait(mutex_);
  optimizer_ = &optimizer;
  factors_ = factors;
  ++updates_;
  updating_ = true;
  changed_.notify_all();
}

void Updater::drain_and_wait() {
  const MutexLock lock(mutex_);
  while (updating_) changed_.wait(mutex_);
  if (parameters_.disk() == nullptr || !status_.ok()) return;
  status_ = parameters_.disk()->drain_and_wait();
}

absl::Status Updater::status() const {
  const MutexLock lock(mutex_);
  return status_;
}

std::uint64_t Updater::updates() const {
  const MutexLock lock(mutex_);
  return updates_;
}

void Updater::set_updates(std::uint64_t updates) {
  const MutexLock lock(mutex_);
  updates_ = updates;
}

void Updater::loop() {
  for (;;) {
    offload::HostOptimizer* optimizer = nullptr;
    offload::StepFactors factors;
    std::uint64_t version = 0;
    {
      const MutexLock lock(mutex_);
      while (!updating_ && !stopping_) changed_.wait(mutex_);
      if (!updating_) return;
      optimizer = optimizer_;
      factors = factors_;
      version = updates_;
    }
    const absl::Status status = update_all(*optimizer, factors, version);
    if (!status.ok()) {
      parameters_.fail(status);
      on_error_(status);
    }
    const MutexLock lock(mutex_);
    if (status_.ok()) status_ = status;
    updating_ = false;
    changed_.notify_all();
  }
}

absl::Status Updater::update_all(offload::HostOptimizer& optimizer, const offload::StepFactors& factors,
                                 std::uint64_t version) const {
  for (const offload::ParameterId id : order_) {
    RONDO_RETURN_IF_ERROR(optimizer.update(id, factors, version));
    parameters_.set_version(id, version);
  }
  return absl::OkStatus();
}

}  // namespace rondo::schedule
