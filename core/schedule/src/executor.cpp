#include "rondo/schedule/executor.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "rondo/base/mutex.h"
#include "rondo/base/status.h"
#include "rondo/schedule/shape.h"
#include "worker.h"

namespace rondo::schedule {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

class StepExecutor::Impl final : public SharedState {
 public:
  explicit Impl(const ExecutorParts& executor_parts)
      : parts_(executor_parts), trained_(update_order(*executor_parts.model)) {
    parts = &parts_;
  }

  ~Impl() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    if (updater_.joinable()) updater_.join();
    if (boundaries_ != nullptr) boundaries_->fail(absl::CancelledError("the run has ended"));
    if (gradients_ != nullptr) gradients_->abandon();
    for (const auto& worker : workers_) worker->stop();
    for (const auto& worker : workers_) worker->join();
  }

  absl::Status prepare() {
    const partition::Plan& plan = *parts_.plan;
    const bool phantom = parts_.parameters->phantom();
    const partition::BoundaryLayout layout = partition::layout_boundaries(*parts_.shape, plan.slots, plan.rounds);
    RONDO_ASSIGN_OR_RETURN(
        boundaries_, offload::ActivationStore::make({layout.activation_cuts, layout.gradient_cuts, layout.microbatches,
                                                     parts_.work.boundary_bytes, phantom, layout.rounds}));
    RONDO_ASSIGN_OR_RETURN(gradients_,
                           offload::GradientHome::make(gradient_specs(*parts_.model), parts_.model->parameters().size(),
                                                       phantom, *parts_.threads));
    boundaries = boundaries_.get();
    gradients = gradients_.get();
    optimizer_ = std::make_unique<offload::HostOptimizer>(parts_.optimizer, *parts_.parameters, *gradients_,
                                                          *parts_.threads, parts_.host);
    for (std::uint32_t m = 0; m < parts_.work.microbatches; ++m) {
      RONDO_ASSIGN_OR_RETURN(devices::Buffer buffer, devices::allocate_host(parts_.work.batch_bytes, "batches"));
      batches_.push_back(std::move(buffer));
    }
    job.batches.resize(batches_.size());
    job.buckets.resize(batches_.size());
    job.losses.resize(batches_.size());
    for (partition::DeviceIndex i = 0; i < parts_.devices.size(); ++i) {
      const bool used = std::ranges::any_of(plan.slots, [&](const partition::Slot& slot) { return slot.device == i; });
      if (!used) continue;
      RONDO_ASSIGN_OR_RETURN(auto worker, Worker::make(*this, i));
      workers_.push_back(std::move(worker));
    }
    if (parts_.parameters->disk() != nullptr) parts_.parameters->disk()->start();
    updater_ = std::thread([this] { update_loop(); });
    return absl::OkStatus();
  }

  void fail(const absl::Status& error) override {
    {
      const MutexLock lock(mutex_);
      if (error_.ok()) error_ = error;
    }
    boundaries_->fail(error);
    gradients_->abandon();
    for (const auto& worker : workers_) worker->stop();
  }

  absl::StatusOr<StepResult> train(const std::vector<Microbatch>& microbatches, const UpdateSettings& settings) {
    StepResult result;
    for (const Microbatch& batch : microbatches) result.target_tokens += batch.target_tokens;
    if (result.target_tokens == 0) {
      result.skipped = true;
      return result;
    }
    const auto count = static_cast<std::uint32_t>(microbatches.size());
    const std::uint32_t group = parts_.work.reduction_group;
    gradients_->begin_step((count + group - 1) / group, count);
    RONDO_RETURN_IF_ERROR(run_job(microbatches, false));
    RONDO_RETURN_IF_ERROR(gradients_->wait_until_complete(Clock::now() + std::chrono::hours(1)));
    for (std::uint32_t m = 0; m < count; ++m) result.loss_sum += job.losses[m];
    if (!std::isfinite(result.loss_sum)) return internal_error("the loss of step {} is not finite", step_);
    RONDO_ASSIGN_OR_RETURN(const double norm, gradient_norm());
    if (parts_.parameters->disk() != nullptr) RONDO_RETURN_IF_ERROR(parts_.parameters->disk()->status());
    const double mean = 1.0 / static_cast<double>(result.target_tokens);
    result.grad_norm = norm * mean;
    double factor = mean;
    if (settings.max_grad_norm > 0) factor *= std::min(1.0, settings.max_grad_norm / (result.grad_norm + 1e-6));
    start_update(offload::make_factors(parts_.optimizer, settings.learning_rate, updates() + 1, factor));
    return result;
  }

  absl::StatusOr<StepResult> evaluate(const std::vector<Microbatch>& microbatches) {
    StepResult result;
    for (const Microbatch& batch : microbatches) result.target_tokens += batch.target_tokens;
    RONDO_RETURN_IF_ERROR(run_job(microbatches, true));
    for (std::size_t m = 0; m < microbatches.size(); ++m) result.loss_sum += job.losses[m];
    return result;
  }

  void drain_and_wait() {
    const MutexLock lock(mutex_);
    while (updating_) changed_.wait(mutex_);
    if (parts_.parameters->disk() == nullptr || !update_error_.ok()) return;
    update_error_ = parts_.parameters->disk()->drain_and_wait();
  }
  absl::Status update_status() const {
    const MutexLock lock(mutex_);
    return update_error_;
  }

  std::uint64_t updates() const {
    const MutexLock lock(mutex_);
    return updates_;
  }
  void set_updates(std::uint64_t updates) {
    const MutexLock lock(mutex_);
    updates_ = updates;
    parts_.parameters->set_all_versions(updates);
  }

  std::vector<Bytes> peak_bytes() const {
    std::vector<Bytes> bytes;
    for (const ExecutorDevice& member : parts_.devices) bytes.push_back(member.device->peak_bytes());
    return bytes;
  }
  std::vector<const DeviceTrace*> traces() const {
    std::vector<const DeviceTrace*> traces;
    for (const auto& worker : workers_) {
      if (worker->trace() != nullptr) traces.push_back(worker->trace());
    }
    return traces;
  }
  void clear_traces() {
    for (const auto& worker : workers_) worker->clear_trace();
  }

 private:
  absl::Status run_job(const std::vector<Microbatch>& microbatches, bool evaluate) {
    {
      const MutexLock lock(mutex_);
      if (!error_.ok()) return error_;
      job.version = updates_;
    }
    if (!evaluate) ++step_;
    job.step = step_;
    job.evaluate = evaluate;
    job.first_round = next_round_;
    job.microbatches = static_cast<std::uint32_t>(microbatches.size());
    next_round_ += parts_.plan->rounds.size();
    for (std::size_t m = 0; m < microbatches.size(); ++m) {
      const std::uint32_t bucket = devices::token_bucket(static_cast<std::uint32_t>(microbatches[m].ids.size()));
      job.buckets[m] = bucket;
      job.batches[m] = batches_[m].view().part(0, BatchLayout(bucket).total());
      job.losses[m] = 0;
      pack_batch(microbatches[m], bucket, job.batches[m].host());
    }
    for (const auto& worker : workers_) worker->begin();
    for (const auto& worker : workers_) worker->wait_until_done();
    const MutexLock lock(mutex_);
    return error_;
  }

  /// Of the gradient of the sum over all targets. In the order of parameters.
  absl::StatusOr<double> gradient_norm() {
    double sum = 0;
    for (const model::ParameterId id : trained_) {
      const double squares = gradients_->finish(id);
      if (!std::isfinite(squares)) {
        return internal_error("step {}: the gradient of {} is not finite", step_, parts_.model->parameters()[id].name);
      }
      sum += squares;
    }
    return std::sqrt(sum);
  }

  void start_update(const offload::StepFactors& factors) {
    const MutexLock lock(mutex_);
    while (updating_) changed_.wait(mutex_);
    factors_ = factors;
    ++updates_;
    updating_ = true;
    changed_.notify_all();
  }

  void update_loop() {
    for (;;) {
      offload::StepFactors factors;
      std::uint64_t version = 0;
      {
        const MutexLock lock(mutex_);
        while (!updating_ && !stopping_) changed_.wait(mutex_);
        if (!updating_) return;
        factors = factors_;
        version = updates_;
      }
      const absl::Status status = update_all(factors, version);
      if (!status.ok()) {
        parts_.parameters->fail(status);
        fail(status);
      }
      const MutexLock lock(mutex_);
      if (update_error_.ok()) update_error_ = status;
      updating_ = false;
      changed_.notify_all();
    }
  }

  absl::Status update_all(const offload::StepFactors& factors, std::uint64_t version) {
    for (const model::ParameterId id : trained_) {
      RONDO_RETURN_IF_ERROR(optimizer_->update(id, factors, version));
      parts_.parameters->set_version(id, version);
    }
    return absl::OkStatus();
  }

  const ExecutorParts parts_;
  const std::vector<model::ParameterId> trained_;
  std::unique_ptr<offload::ActivationStore> boundaries_;
  std::unique_ptr<offload::GradientHome> gradients_;
  std::unique_ptr<offload::HostOptimizer> optimizer_;
  std::vector<devices::Buffer> batches_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::uint32_t step_ = 0;
  std::uint64_t next_round_ = 0;

  mutable Mutex mutex_;
  CondVar changed_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  absl::Status update_error_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool updating_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t updates_ ABSL_GUARDED_BY(mutex_) = 0;
  offload::StepFactors factors_ ABSL_GUARDED_BY(mutex_);
  std::thread updater_;
};

StepExecutor::StepExecutor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StepExecutor::~StepExecutor() = default;

absl::StatusOr<std::unique_ptr<StepExecutor>> StepExecutor::make(const ExecutorParts& parts) {
  auto impl = std::make_unique<Impl>(parts);
  RONDO_RETURN_IF_ERROR(impl->prepare());
  return std::unique_ptr<StepExecutor>(new StepExecutor(std::move(impl)));
}

absl::StatusOr<StepResult> StepExecutor::train(const std::vector<Microbatch>& microbatches,
                                               const UpdateSettings& settings) {
  return impl_->train(microbatches, settings);
}
absl::StatusOr<StepResult> StepExecutor::evaluate(const std::vector<Microbatch>& microbatches) {
  return impl_->evaluate(microbatches);
}
void StepExecutor::drain_and_wait() { impl_->drain_and_wait(); }
absl::Status StepExecutor::update_status() const { return impl_->update_status(); }
std::uint64_t StepExecutor::updates() const { return impl_->updates(); }
void StepExecutor::set_updates(std::uint64_t updates) { impl_->set_updates(updates); }
std::vector<Bytes> StepExecutor::peak_bytes() const { return impl_->peak_bytes(); }
void StepExecutor::abandon() { impl_->fail(absl::CancelledError("the step was abandoned")); }
void StepExecutor::clear_traces() { impl_->clear_traces(); }
std::vector<const DeviceTrace*> StepExecutor::traces() const { return impl_->traces(); }

}  // namespace rondo::schedule
