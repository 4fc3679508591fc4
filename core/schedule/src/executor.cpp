#include "rondo/schedule/executor.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "crew.h"
#include "replan.h"
#include "rondo/base/mutex.h"
#include "rondo/base/status.h"
#include "rondo/schedule/shape.h"

namespace rondo::schedule {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

/// A step's answer before its update.
struct Gathered {
  double loss_sum = 0;
  double norm = 0;      // of the gradient of the sum over all targets
  absl::Status finite;  // names what is not
};

class StepExecutor::Impl {
 public:
  explicit Impl(const ExecutorParts& executor_parts)
      : parts_(executor_parts),
        trained_(update_order(*executor_parts.model)),
        plan_(*executor_parts.plan),
        lost_(executor_parts.devices.size(), false) {}

  ~Impl() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    if (updater_.joinable()) updater_.join();
    if (gradients_ != nullptr) gradients_->abandon();
    Crew::dismiss(std::move(crew_));
  }

  absl::Status prepare() {
    RONDO_ASSIGN_OR_RETURN(gradients_,
                           offload::GradientHome::make(gradient_specs(*parts_.model), parts_.model->parameters().size(),
                                                       parts_.parameters->phantom(), *parts_.threads));
    optimizer_ = std::make_unique<offload::HostOptimizer>(parts_.optimizer, *parts_.parameters, *gradients_,
                                                          *parts_.threads, parts_.host);
    for (std::uint32_t m = 0; m < parts_.work.microbatches; ++m) {
      RONDO_ASSIGN_OR_RETURN(devices::Buffer buffer, devices::allocate_host(parts_.work.batch_bytes, "batches"));
      batches_.push_back(std::move(buffer));
    }
    RONDO_RETURN_IF_ERROR(make_crew(plan_));
    if (parts_.parameters->disk() != nullptr) parts_.parameters->disk()->start();
    updater_ = std::thread([this] { update_loop(); });
    return absl::OkStatus();
  }

  void abandon() {
    const MutexLock lock(mutex_);
    if (error_.ok()) error_ = absl::CancelledError("the step was abandoned");
    if (crew_ != nullptr) crew_->fail(error_);
  }

  absl::StatusOr<StepResult> train(const std::vector<Microbatch>& microbatches, const UpdateSettings& settings) {
    StepResult result;
    for (const Microbatch& batch : microbatches) result.target_tokens += batch.target_tokens;
    if (result.target_tokens == 0) {
      result.skipped = true;
      return result;
    }
    ++step_;
    RONDO_ASSIGN_OR_RETURN(Gathered gathered, gather(microbatches));
    if (!gathered.finite.ok() && parts_.recovery.enabled()) {
      notes_.push_back(fmt::format("{}; the step is repeated{}", text_of(gathered.finite),
                                   plan_.devices.size() > 1 ? ", each slot on another device" : ""));
      retries_ += plan_.slots.size();
      elsewhere_ = true;
      RONDO_ASSIGN_OR_RETURN(gathered, gather(microbatches));
    }
    if (!gathered.finite.ok()) return give_up(gathered.finite);
    if (parts_.parameters->disk() != nullptr) {
      const absl::Status disk = parts_.parameters->disk()->status();
      if (!disk.ok()) return give_up(disk);
    }
    result.loss_sum = gathered.loss_sum;
    const double mean = 1.0 / static_cast<double>(result.target_tokens);
    result.grad_norm = gathered.norm * mean;
    double factor = mean;
    if (settings.max_grad_norm > 0) factor *= std::min(1.0, settings.max_grad_norm / (result.grad_norm + 1e-6));
    start_update(offload::make_factors(parts_.optimizer, settings.learning_rate, updates() + 1, factor));
    return result;
  }

  absl::StatusOr<StepResult> evaluate(const std::vector<Microbatch>& microbatches) {
    StepResult result;
    for (const Microbatch& batch : microbatches) result.target_tokens += batch.target_tokens;
    RONDO_RETURN_IF_ERROR(run_job(microbatches, true));
    for (std::size_t m = 0; m < microbatches.size(); ++m) result.loss_sum += crew_->job.losses[m];
    keep_losses(microbatches.size());
    last_step_.finite = std::isfinite(result.loss_sum);
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

  std::uint64_t retries() const { return retries_ + (crew_ != nullptr ? crew_->retries() : 0); }
  std::vector<partition::DeviceIndex> lost_devices() const { return losses_; }
  const LastStep& last_step() const { return last_step_; }
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }
  const partition::Plan& plan() const { return plan_; }

  std::vector<Bytes> peak_bytes() const {
    std::vector<Bytes> bytes;
    for (const ExecutorDevice& member : parts_.devices) bytes.push_back(member.device->peak_bytes());
    return bytes;
  }
  std::vector<const DeviceTrace*> traces() const {
    return crew_ != nullptr ? crew_->traces() : std::vector<const DeviceTrace*>();
  }
  void clear_traces() {
    if (crew_ != nullptr) crew_->clear_traces();
  }

 private:
  static std::string text_of(const absl::Status& status) { return {status.message().data(), status.message().size()}; }

  /// The step up to its commit point.
  absl::StatusOr<Gathered> gather(const std::vector<Microbatch>& microbatches) {
    const auto count = static_cast<std::uint32_t>(microbatches.size());
    RONDO_RETURN_IF_ERROR(run_job(microbatches, false));
    RONDO_RETURN_IF_ERROR(gradients_->wait_until_complete(Clock::now() + std::chrono::hours(1)));
    Gathered gathered;
    for (std::uint32_t m = 0; m < count; ++m) gathered.loss_sum += crew_->job.losses[m];
    if (!std::isfinite(gathered.loss_sum)) {
      gathered.finite = internal_error("the loss of step {} is not finite", step_);
    }
    double sum = 0;
    for (const model::ParameterId id : trained_) {
      const double squares = gradients_->finish(id);
      if (!std::isfinite(squares) && (gathered.finite.ok() || std::isfinite(sum))) {
        gathered.finite =
            internal_error("step {}: the gradient of {} is not finite", step_, parts_.model->parameters()[id].name);
      }
      sum += squares;
    }
    gathered.norm = std::sqrt(sum);
    keep_losses(count);
    last_step_.finite = gathered.finite.ok();
    return gathered;
  }

  void keep_losses(std::size_t count) {
    const std::vector<double>& losses = crew_->job.losses;
    last_step_.losses.assign(losses.begin(), losses.begin() + static_cast<std::ptrdiff_t>(count));
  }

  /// Runs it until it is done: again from the start when no device could take over what a lost one left.
  absl::Status run_job(const std::vector<Microbatch>& microbatches, bool evaluate) {
    for (;;) {
      RONDO_RETURN_IF_ERROR(renew_crew());
      fill_job(microbatches, evaluate);
      if (!evaluate) {
        const auto count = static_cast<std::uint32_t>(microbatches.size());
        const std::uint32_t group = parts_.work.reduction_group;
        gradients_->begin_step((count + group - 1) / group, count);
      }
      const absl::Status status = crew_->run();
      take_news(evaluate);
      if (status.ok()) return status;
      if (status.code() != absl::StatusCode::kAborted) return give_up(status);
      retries_ += plan_.slots.size();
    }
  }

  void fill_job(const std::vector<Microbatch>& microbatches, bool evaluate) {
    StepJob& job = crew_->job;
    {
      const MutexLock lock(mutex_);
      job.version = updates_;
    }
    job.step = step_;
    job.evaluate = evaluate;
    job.first_round = next_round_;
    job.microbatches = static_cast<std::uint32_t>(microbatches.size());
    next_round_ += crew_->plan->rounds.size();
    for (std::size_t m = 0; m < microbatches.size(); ++m) {
      const std::uint32_t bucket = devices::token_bucket(static_cast<std::uint32_t>(microbatches[m].ids.size()));
      job.buckets[m] = bucket;
      job.batches[m] = batches_[m].view().part(0, BatchLayout(bucket).total());
      job.losses[m] = 0;
      pack_batch(microbatches[m], bucket, job.batches[m].host());
    }
  }

  /// What the crew has to tell of its losses.
  void take_news(bool evaluate) {
    for (const Loss& loss : crew_->losses()) {
      if (lost_[loss.device]) continue;
      lost_[loss.device] = true;
      losses_.push_back(loss.device);
    }
    const auto left = std::ranges::count(lost_, false);
    for (const std::string& note : crew_->take_notes()) {
      last_loss_ = note;
      notes_.push_back(fmt::format("{} {}: {}; {} of {} devices left", evaluate ? "evaluation after step" : "step",
                                   step_, note, left, lost_.size()));
    }
  }

  /// A crew that is whole, under a plan without the lost devices.
  absl::Status renew_crew() {
    {
      const MutexLock lock(mutex_);
      if (!error_.ok()) return error_;
      if (crew_ != nullptr && !crew_->spent() && !elsewhere_ && !was_elsewhere_) return absl::OkStatus();
    }
    if (std::ranges::count(lost_, true) != losses_planned_for_) {
      absl::StatusOr<partition::Plan> rest = plan_over_rest(parts_, lost_);
      if (!rest.ok()) return give_up(with_context(rest.status(), fmt::format("step {}: {}", step_, last_loss_)));
      plan_ = *std::move(rest);
      losses_planned_for_ = std::ranges::count(lost_, true);
    }
    was_elsewhere_ = std::exchange(elsewhere_, false);
    const absl::Status made = make_crew(was_elsewhere_ ? plan_elsewhere(parts_, plan_) : plan_);
    return made.ok() ? made : give_up(made);
  }

  absl::Status make_crew(const partition::Plan& plan) {
    std::unique_ptr<Crew> before;
    {
      const MutexLock lock(mutex_);
      before = std::move(crew_);
    }
    // Its memory is needed.
    if (before != nullptr) retries_ += before->retries();
    Crew::dismiss(std::move(before));
    RONDO_ASSIGN_OR_RETURN(auto crew, Crew::make(parts_, plan, lost_, *gradients_));
    const MutexLock lock(mutex_);
    crew_ = std::move(crew);
    if (!error_.ok()) crew_->fail(error_);
    return absl::OkStatus();
  }

  absl::Status give_up(const absl::Status& error) {
    const MutexLock lock(mutex_);
    if (error_.ok()) error_ = error;
    return error_;
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
      if (!status.ok()) parts_.parameters->fail(status);
      const MutexLock lock(mutex_);
      if (!status.ok()) {
        if (error_.ok()) error_ = status;
        if (crew_ != nullptr) crew_->fail(error_);
      }
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
  std::unique_ptr<offload::GradientHome> gradients_;
  std::unique_ptr<offload::HostOptimizer> optimizer_;
  std::vector<devices::Buffer> batches_;
  partition::Plan plan_;                        // over the devices that are left
  std::vector<bool> lost_;                      // by device
  std::vector<partition::DeviceIndex> losses_;  // in their order
  std::ptrdiff_t losses_planned_for_ = 0;
  std::string last_loss_;
  bool elsewhere_ = false;      // the next crew has its slots on other devices
  bool was_elsewhere_ = false;  // this one has
  std::vector<std::string> notes_;
  LastStep last_step_;
  std::uint64_t retries_ = 0;  // of crews that were dismissed, and whole steps
  std::uint32_t step_ = 0;
  std::uint64_t next_round_ = 0;

  mutable Mutex mutex_;
  CondVar changed_;
  // Changed by the thread that runs jobs, which may read it without the mutex; the user's thread comes through
  // abandon().
  std::unique_ptr<Crew> crew_;
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
void StepExecutor::abandon() { impl_->abandon(); }
std::uint64_t StepExecutor::retries() const { return impl_->retries(); }
std::vector<partition::DeviceIndex> StepExecutor::lost_devices() const { return impl_->lost_devices(); }
const LastStep& StepExecutor::last_step() const { return impl_->last_step(); }
std::vector<std::string> StepExecutor::take_notes() { return impl_->take_notes(); }
const partition::Plan& StepExecutor::plan() const { return impl_->plan(); }
void StepExecutor::clear_traces() { impl_->clear_traces(); }
std::vector<const DeviceTrace*> StepExecutor::traces() const { return impl_->traces(); }

}  // namespace rondo::schedule
