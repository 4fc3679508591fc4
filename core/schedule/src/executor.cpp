#include "rondo/schedule/executor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>

#include "card_state.h"
#include "crew.h"
#include "pace.h"
#include "replan.h"
#include "rondo/base/mutex.h"
#include "rondo/base/status.h"
#include "rondo/schedule/shape.h"
#include "updater.h"

namespace rondo::schedule {
using Clock = std::chrono::steady_clock;

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
        lost_(executor_parts.devices.size(), false),
        keeps_pace_(may_keep_pace(executor_parts)),
        pace_(executor_parts.devices.size()),
        computed_before_(executor_parts.devices.size(), 0.0),
        computed_(computed_before_),
        measured_(computed_),
        by_profile_(computed_) {}

  ~Impl() {
    updater_.reset();
    for (const auto& home : homes_) {
      if (home != nullptr) home->abandon();
    }
    Crew::dismiss(std::move(crew_));
  }

  absl::Status prepare() {
    for (std::size_t i = 0; i <= parts_.work.staleness; ++i) {
      RONDO_ASSIGN_OR_RETURN(
          homes_[i],
          offload::GradientHome::make(gradient_specs(*parts_.model), parts_.model->parameters().size(),
                                      parts_.parameters->phantom() || parts_.shape->holds_state, *parts_.threads));
      optimizers_[i] = std::make_unique<offload::HostOptimizer>(parts_.optimizer, *parts_.parameters, *homes_[i],
                                                                *parts_.threads, parts_.host);
      for (std::uint32_t m = 0; m < parts_.work.microbatches; ++m) {
        RONDO_ASSIGN_OR_RETURN(devices::Buffer buffer, devices::allocate_host(parts_.work.batch_bytes, "batches"));
        batches_[i].push_back(std::move(buffer));
      }
      jobs_[i].buckets.resize(parts_.work.microbatches);
      jobs_[i].batches.resize(parts_.work.microbatches);
    }
    RONDO_RETURN_IF_ERROR(make_crew(plan_));
    if (parts_.parameters->disk() != nullptr) RONDO_RETURN_IF_ERROR(parts_.parameters->disk()->start());
    updater_.emplace(trained_, *parts_.parameters, [this](const absl::Status& error) {
      const MutexLock lock(mutex_);
      if (error_.ok()) error_ = error;
      if (crew_ != nullptr) crew_->fail(error_);
    });
    return updater_->open();
  }

  void abandon() {
    const MutexLock lock(mutex_);
    if (error_.ok()) error_ = absl::CancelledError("the step was abandoned");
    if (crew_ != nullptr) crew_->fail(error_);
  }

  void begin(const std::vector<Microbatch>& microbatches, bool last) {
    ++step_;
    Begun& step = begun_[count_begun_++];
    step = {};
    for (const Microbatch& batch : microbatches) step.target_tokens += batch.target_tokens;
    if (step.target_tokens == 0) return;
    step.which = next_job_++ % (1 + parts_.work.staleness);
    // At staleness 1 never what the step before leaves, whether or not it has ended.
    const bool overlaps = count_begun_ > 1 && begun_[0].target_tokens > 0;
    const Course& seen = parts_.work.staleness == 0 || overlaps ? course_.now : course_.before;
    if (scales()) {
      step.loss_scale = seen.loss_scale;
      step.multiplier = multiplier_of(seen.loss_scale, step.target_tokens);
    }
    fill_job(step.which, microbatches, seen.updates, step_, static_cast<float>(step.multiplier));
    jobs_[step.which].evaluate = false;
    jobs_[step.which].last = last;
    // A step that cannot begin yet (a device was lost) does so when it is its turn.
    if (ready()) begin_job(step);
  }

  absl::StatusOr<StepResult> finish(const UpdateSettings& settings) {
    StepResult result;
    result.target_tokens = begun_[0].target_tokens;
    result.skipped = result.target_tokens == 0;
    result.loss_scale = begun_[0].loss_scale;
    if (!result.skipped) {
      const absl::Status status = finish_job(settings, result);
      if (!status.ok()) {
        count_begun_ = 0;  // what was begun after it is of no use either
        return status;
      }
      if (keeps_pace_) watch_pace(jobs_[begun_[0].which]);
    }
    std::rotate(begun_.begin(), begun_.begin() + 1, begun_.end());
    --count_begun_;
    return result;
  }

  absl::StatusOr<StepResult> evaluate(const std::vector<Microbatch>& microbatches) {
    StepResult result;
    for (const Microbatch& batch : microbatches) result.target_tokens += batch.target_tokens;
    if (result.target_tokens == 0) {  // as a step without targets: no job of the crew's
      last_step_ = {std::vector<double>(microbatches.size(), 0.0), true};
      return result;
    }
    fill_job(0, microbatches, updates(), step_, 1.0F);
    jobs_[0].evaluate = true;
    jobs_[0].last = false;
    begun_[0] = {.target_tokens = result.target_tokens};
    count_begun_ = 1;
    const absl::Status status = run_job();
    count_begun_ = 0;
    RONDO_RETURN_IF_ERROR(status);
    for (std::size_t m = 0; m < microbatches.size(); ++m) result.loss_sum += crew_->jobs[0].losses[m];
    keep_losses(crew_->jobs[0]);
    last_step_.finite = std::isfinite(result.loss_sum);
    if (keeps_pace_) note_computed();
    return result;
  }

  void wait_for_update() {
    updater_->drain_and_wait();
    if (crew_ != nullptr && crew_->card_state != nullptr && home_status_.ok()) home_status_ = crew_->card_state->wait();
  }
  void drain_and_wait() {
    updater_->drain_and_wait();
    if (crew_ != nullptr && home_status_.ok()) home_status_ = crew_->bring_state_home();
  }
  absl::Status update_status() const { return home_status_.ok() ? updater_->status() : home_status_; }

  std::uint64_t updates() const { return updater_->updates(); }
  const RunCourse& course() const { return course_; }
  void set_course(const RunCourse& course) {
    course_ = course;
    set_updates(course.now.updates);
  }
  void set_steps(std::uint64_t steps) { steps_before_ = steps; }
  void set_updates(std::uint64_t updates) {
    updater_->set_updates(updates);
    parts_.parameters->set_all_versions(updates);
  }

  std::uint64_t retries() const { return retries_ + (crew_ != nullptr ? crew_->retries() : 0); }
  std::vector<partition::DeviceIndex> lost_devices() const { return losses_; }
  const LastStep& last_step() const { return last_step_; }
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }
  const partition::Plan& plan() const { return plan_; }

  std::vector<double> compute_seconds() const {
    std::vector<double> seconds;
    for (partition::DeviceIndex i = 0; i < computed_before_.size(); ++i) seconds.push_back(compute_seconds(i));
    return seconds;
  }
  std::vector<Bytes> peak_bytes() const {
    std::vector<Bytes> bytes;
    for (const ExecutorDevice& member : parts_.devices) bytes.push_back(member.device->peak_bytes());
    return bytes;
  }
  offload::BoundaryTier::Stats boundary_traffic() const {
    const offload::BoundaryTier* tier = crew_ == nullptr ? nullptr : crew_->boundaries->tier();
    return tier == nullptr ? offload::BoundaryTier::Stats{} : tier->stats();
  }
  std::vector<const DeviceTrace*> traces() const {
    if (crew_ == nullptr) return {};
    const std::vector<DeviceTrace*> traces = crew_->traces();
    return {traces.begin(), traces.end()};
  }
  void take_spans(std::vector<TakenSpans>& devices, std::size_t& dropped) {
    const std::vector<DeviceTrace*> traces = crew_ != nullptr ? crew_->traces() : std::vector<DeviceTrace*>();
    devices.resize(traces.size());
    for (std::size_t i = 0; i < traces.size(); ++i) {
      devices[i].device = traces[i]->name();
      dropped += traces[i]->dropped();
      devices[i].count = traces[i]->take(devices[i].spans);
    }
  }
  void clear_traces() {
    if (crew_ != nullptr) crew_->clear_traces();
  }

 private:
  /// A step that was begun and is not finished.
  struct Begun {
    std::uint64_t target_tokens = 0;  // 0: it is skipped
    std::uint32_t which = 0;          // its job
    bool at_work = false;             // the crew has it
    double loss_scale = 1;
    double multiplier = 1;  // of its gradients
  };

  /// The oldest step, with its update started.
  absl::Status finish_job(const UpdateSettings& settings, StepResult& result) {
    RONDO_ASSIGN_OR_RETURN(Gathered gathered, gather());
    // In fp16 it mostly is an overflow; on another device it would be one too.
    const bool may_skip = scales() && begun_[0].loss_scale > kLeastLossScale;
    if (!gathered.finite.ok() && parts_.recovery.enabled() && (!may_skip || lost_.size() > 1)) {
      notes_.push_back(fmt::format("{}; the step is repeated{}", message_of(gathered.finite),
                                   plan_.devices.size() > 1 ? ", each slot on another device" : ""));
      retries_ += plan_.slots.size();
      elsewhere_ = true;
      stop_crew();
      RONDO_ASSIGN_OR_RETURN(gathered, gather());
    }
    if (!gathered.finite.ok()) return may_skip ? skip(gathered, result) : give_up(gathered.finite);
    if (parts_.parameters->disk() != nullptr) {
      const absl::Status disk = parts_.parameters->disk()->status();
      if (!disk.ok()) return give_up(disk);
    }
    result.loss_sum = gathered.loss_sum;
    const double mean = 1.0 / static_cast<double>(result.target_tokens) / begun_[0].multiplier;
    result.grad_norm = gathered.norm * mean;
    double factor = mean;
    if (settings.max_grad_norm > 0) factor *= std::min(1.0, settings.max_grad_norm / (result.grad_norm + 1e-6));
    course_ = {after_update(course_.now), course_.now};
    const offload::StepFactors factors =
        offload::make_factors(parts_.optimizer, settings.learning_rate, updates() + 1, factor);
    if (CardState* state = crew_->card_state; state != nullptr) {
      updater_->set_updates(updates() + 1);
      state->begin_update(factors, jobs_[begun_[0].which].step, updates());
      return absl::OkStatus();
    }
    updater_->start(*optimizers_[begun_[0].which], factors);
    return absl::OkStatus();
  }

  /// Of each parameter's gradient, in the order of updates.
  absl::Status take_squares(const StepJob& job) {
    if (crew_->card_state != nullptr) {
      return crew_->card_state->take_squares(job.step, squares_);
    }
    RONDO_RETURN_IF_ERROR(job.gradients->wait_until_complete(Clock::now() + std::chrono::hours(1)));
    squares_.clear();
    for (const model::ParameterId id : trained_) squares_.push_back(job.gradients->squares(id));
    return absl::OkStatus();
  }

  bool scales() const { return parts_.parameters->dtype() == devices::DType::kFloat16; }

  /// The oldest step: nothing that lasts changes but the scale.
  absl::Status skip(const Gathered& gathered, StepResult& result) {
    course_ = {after_overflow(course_.now, begun_[0].loss_scale), course_.now};
    result.skipped = true;
    result.overflowed = true;
    result.loss_sum = std::isfinite(gathered.loss_sum) ? gathered.loss_sum : 0;
    notes_.push_back(describe_overflow(gathered.finite, course_.now));
    return absl::OkStatus();
  }

  /// Where the numerics classes differ, the answer would depend on when a device falls behind.
  static bool may_keep_pace(const ExecutorParts& parts) {
    const auto differs = [&](const ExecutorDevice& member) {
      return member.device->caps().numerics_class != parts.devices.front().device->caps().numerics_class;
    };
    return parts.recovery.keep_pace && parts.recovery.enabled() && parts.devices.size() > 1 &&
           std::ranges::none_of(parts.devices, differs);
  }

  double compute_seconds(partition::DeviceIndex device) const {
    return computed_before_[device] + (crew_ == nullptr ? 0 : crew_->compute_seconds(device));
  }

  /// What the devices computed since the last call, in measured_.
  void note_computed() {
    for (partition::DeviceIndex i = 0; i < measured_.size(); ++i) {
      const double now = compute_seconds(i);
      measured_[i] = now - std::exchange(computed_[i], now);
    }
  }

  /// Deals anew when a device computes at another pace than the plan takes it to.
  void watch_pace(const StepJob& job) {
    note_computed();
    if (!std::exchange(counts_step_, true)) return;  // what was counted is not one step of one crew
    if (replan_ || was_elsewhere_ || crew_->spent()) return;
    const std::span<const std::uint32_t> buckets(job.buckets.data(), job.microbatches);
    seconds_by_profile(parts_.work, plan_, pace_, buckets, by_profile_);
    if (!pace_.step(measured_, by_profile_)) return;
    const partition::MachineShape machine = at_pace(parts_, pace_.factors());
    std::string note = describe_pace(number_of(job), pace_, machine);
    predict_anew(parts_, machine, plan_);
    absl::StatusOr<partition::Plan> plan =
        plan_over_rest(parts_, machine, lost_, std::max(promised_host(parts_), plan_.host_peak_bytes));
    constexpr double kWorthIt = 0.97;  // of the step
    const double now = plan_.predicted.step_seconds;
    if (plan.ok() && plan->predicted.step_seconds < kWorthIt * now) {
      note += fmt::format(" from the next step on the layers are dealt anew: {:.4g} s a step instead of {:.4g} s",
                          plan->predicted.step_seconds, now);
      plan_ = *std::move(plan);
      replan_ = true;
    } else {
      note += " no other plan within what was announced of main memory would be quicker";
    }
    notes_.push_back(std::move(note));
  }

  /// The oldest step up to its commit point.
  absl::StatusOr<Gathered> gather() {
    RONDO_RETURN_IF_ERROR(run_job());
    const StepJob& job = crew_->jobs[begun_[0].which];
    if (const absl::Status status = take_squares(job); !status.ok()) return give_up(status);
    Gathered gathered;
    for (std::uint32_t m = 0; m < job.microbatches; ++m) gathered.loss_sum += job.losses[m];
    if (!std::isfinite(gathered.loss_sum)) {
      gathered.finite = internal_error("the loss of step {} is not finite", number_of(job));
    }
    double sum = 0;
    for (std::size_t i = 0; i < trained_.size(); ++i) {
      const double squares = squares_[i];
      if (!std::isfinite(squares) && (gathered.finite.ok() || std::isfinite(sum))) {
        gathered.finite = internal_error("step {}: the gradient of {} is not finite", number_of(job),
                                         parts_.model->parameters()[trained_[i]].name);
      }
      sum += squares;
    }
    gathered.norm = std::sqrt(sum);
    keep_losses(job);
    last_step_.finite = gathered.finite.ok();
    return gathered;
  }

  void keep_losses(const StepJob& job) {
    last_step_.losses.assign(job.losses.begin(), job.losses.begin() + job.microbatches);
  }

  /// Runs the oldest step until it is done: again from the start when no device could take over what a lost one left.
  absl::Status run_job() {
    for (;;) {
      if (!begun_[0].at_work) RONDO_RETURN_IF_ERROR(renew_crew());
      for (std::uint32_t i = 0; i < count_begun_; ++i) {
        Begun& step = begun_[i];
        if (!step.at_work && step.target_tokens > 0 && (i == 0 || ready())) begin_job(step);
      }
      const StepJob& job = jobs_[begun_[0].which];
      const absl::Status status = crew_->finish();
      take_news(job);
      if (status.ok()) return status;
      if (status.code() != absl::StatusCode::kAborted) return give_up(status);
      for (Begun& step : begun_) {
        if (step.at_work) retries_ += plan_.slots.size();
        step.at_work = false;
      }
    }
  }

  /// Another step may be given to the crew beside what it has.
  bool ready() const {
    const MutexLock lock(mutex_);
    return error_.ok() && crew_ != nullptr && !crew_->spent() && !elsewhere_ && !was_elsewhere_ && !replan_;
  }

  void begin_job(Begun& step) {
    StepJob& job = jobs_[step.which];
    job.first_round = next_round_;
    next_round_ += crew_->plan->rounds.size();
    StepJob& given = crew_->jobs[step.which];
    given.step = job.step;
    given.version = job.version;
    given.evaluate = job.evaluate;
    given.last = job.last;
    given.first_round = job.first_round;
    given.microbatches = job.microbatches;
    given.buckets = job.buckets;
    given.batches = job.batches;
    std::ranges::fill(given.losses, 0.0);
    if (!job.evaluate) {
      const std::uint32_t group = parts_.work.reduction_group;
      given.gradients->begin_step((job.microbatches + group - 1) / group, job.microbatches);
    }
    if (crew_->card_state != nullptr) {
      if (const absl::Status status = crew_->card_state->load(); !status.ok()) crew_->fail(status);
    }
    crew_->begin(step.which);
    step.at_work = true;
  }

  /// What the crew has under way is to be begun anew.
  void stop_crew() {
    if (count_begun_ > 1) crew_->fail(absl::CancelledError("the step is repeated"));
    for (Begun& step : begun_) step.at_work = false;
  }

  bool has_given_up() const {
    const MutexLock lock(mutex_);
    return !error_.ok();
  }

  void fill_job(std::uint32_t which, const std::vector<Microbatch>& microbatches, std::uint64_t version,
                std::uint32_t step, float multiplier) {
    // Devices may still read the batches of a step that has failed, and no other will run.
    if (has_given_up()) return;
    StepJob& job = jobs_[which];
    job.version = version;
    job.step = step;
    job.microbatches = static_cast<std::uint32_t>(microbatches.size());
    for (std::size_t m = 0; m < microbatches.size(); ++m) {
      const std::uint32_t bucket = devices::token_bucket(static_cast<std::uint32_t>(microbatches[m].ids.size()));
      job.buckets[m] = bucket;
      job.batches[m] = batches_[which][m].view().part(0, BatchLayout(*parts_.model, bucket).total());
      pack_batch(*parts_.model, block_table_of(*parts_.model, *parts_.parameters), microbatches[m], bucket,
                 parts_.threads, job.batches[m].host(), multiplier);
    }
  }

  /// What the crew has to tell of its losses.
  void take_news(const StepJob& job) {
    for (const Loss& loss : crew_->losses()) {
      if (lost_[loss.device]) continue;
      lost_[loss.device] = true;
      losses_.push_back(loss.device);
    }
    for (const std::string& note : crew_->take_notes()) {
      last_loss_ = note;
      notes_.push_back(fmt::format("{} {}: {}; {} of {} devices left", job.evaluate ? "evaluation after step" : "step",
                                   number_of(job), note, lost_.size() - ++losses_told_, lost_.size()));
    }
  }

  /// As the run counts.
  std::uint64_t number_of(const StepJob& job) const { return steps_before_ + job.step; }

  /// A crew that is whole, under a plan without the lost devices.
  absl::Status renew_crew() {
    {
      const MutexLock lock(mutex_);
      if (!error_.ok()) return error_;
      if (crew_ != nullptr && !crew_->spent() && !elsewhere_ && !was_elsewhere_ && !replan_) {
        return absl::OkStatus();
      }
    }
    if (crew_ != nullptr) {  // it may have lost a device since its last job
      crew_->note_others();
      take_news(jobs_[begun_[0].which]);
    }
    if (std::ranges::count(lost_, true) != losses_planned_for_) {
      std::string note;
      absl::StatusOr<partition::Plan> rest = plan_after_loss(parts_, at_pace(parts_, pace_.factors()), lost_, note);
      if (!rest.ok())
        return give_up(
            with_context(rest.status(), fmt::format("step {}: {}", number_of(jobs_[begun_[0].which]), last_loss_)));
      if (!note.empty()) notes_.push_back(std::move(note));
      plan_ = *std::move(rest);
      losses_planned_for_ = std::ranges::count(lost_, true);
    }
    replan_ = false;
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
    counts_step_ = false;
    if (before != nullptr) {
      retries_ += before->retries();
      for (partition::DeviceIndex i = 0; i < computed_before_.size(); ++i) {
        computed_before_[i] += before->compute_seconds(i);
      }
    }
    if (before != nullptr) RONDO_RETURN_IF_ERROR(before->bring_state_home());
    // Its memory is needed.
    Crew::dismiss(std::move(before));
    RONDO_ASSIGN_OR_RETURN(auto crew, Crew::make(parts_, plan, lost_, {homes_[0].get(), homes_[1].get()}));
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

  const ExecutorParts parts_;
  const std::vector<model::ParameterId> trained_;
  // By job.
  std::array<std::unique_ptr<offload::GradientHome>, kMostJobs> homes_;
  std::array<std::unique_ptr<offload::HostOptimizer>, kMostJobs> optimizers_;
  std::array<std::vector<devices::Buffer>, kMostJobs> batches_;
  std::array<StepJob, kMostJobs> jobs_;  // as they are given to a crew, and to the next one when that fails
  std::array<Begun, kMostJobs> begun_;   // the oldest first
  std::uint32_t count_begun_ = 0;
  std::uint32_t next_job_ = 0;
  absl::Status home_status_;                    // not OK: what a device held could not be taken home
  std::vector<double> squares_;                 // of the step, by trained parameter
  RunCourse course_;                            // of the steps that are finished
  partition::Plan plan_;                        // over the devices that are left
  std::vector<bool> lost_;                      // by device
  std::vector<partition::DeviceIndex> losses_;  // in their order
  const bool keeps_pace_;
  PaceWatch pace_;
  // By device: seconds computed by earlier crews, by all until the last step, in the step, and by the profile in it.
  std::vector<double> computed_before_;
  std::vector<double> computed_;
  std::vector<double> measured_;
  std::vector<double> by_profile_;
  bool counts_step_ = false;  // the crew has ended a step
  std::ptrdiff_t losses_planned_for_ = 0;
  std::size_t losses_told_ = 0;
  std::string last_loss_;
  bool replan_ = false;         // the next crew follows plan_, which the one at work does not
  bool elsewhere_ = false;      // the next crew has its slots on other devices
  bool was_elsewhere_ = false;  // this one has
  std::vector<std::string> notes_;
  LastStep last_step_;
  std::uint64_t retries_ = 0;       // of crews that were dismissed, and whole steps
  std::uint32_t step_ = 0;          // the last that was begun, of this executor
  std::uint64_t steps_before_ = 0;  // of the run
  std::uint64_t next_round_ = 0;

  mutable Mutex mutex_;
  // Changed by the thread that runs jobs, which may read it without the mutex; the user's thread comes through
  // abandon().
  std::unique_ptr<Crew> crew_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::optional<Updater> updater_;
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
  impl_->begin(microbatches, false);
  return impl_->finish(settings);
}
void StepExecutor::begin(const std::vector<Microbatch>& microbatches, bool last) { impl_->begin(microbatches, last); }
absl::StatusOr<StepResult> StepExecutor::finish(const UpdateSettings& settings) { return impl_->finish(settings); }
absl::StatusOr<StepResult> StepExecutor::evaluate(const std::vector<Microbatch>& microbatches) {
  return impl_->evaluate(microbatches);
}
void StepExecutor::wait_for_update() { impl_->wait_for_update(); }
void StepExecutor::drain_and_wait() { impl_->drain_and_wait(); }
absl::Status StepExecutor::update_status() const { return impl_->update_status(); }
const RunCourse& StepExecutor::course() const { return impl_->course(); }
void StepExecutor::set_course(const RunCourse& course) { impl_->set_course(course); }
std::uint64_t StepExecutor::updates() const { return impl_->updates(); }
void StepExecutor::set_updates(std::uint64_t updates) {
  impl_->set_course({{.updates = updates}, {.updates = updates > 0 ? updates - 1 : 0}});
}
std::vector<double> StepExecutor::compute_seconds() const { return impl_->compute_seconds(); }
std::vector<Bytes> StepExecutor::peak_bytes() const { return impl_->peak_bytes(); }
offload::BoundaryTier::Stats StepExecutor::boundary_traffic() const { return impl_->boundary_traffic(); }
void StepExecutor::set_steps(std::uint64_t steps) { impl_->set_steps(steps); }
void StepExecutor::abandon() { impl_->abandon(); }
std::uint64_t StepExecutor::retries() const { return impl_->retries(); }
std::vector<partition::DeviceIndex> StepExecutor::lost_devices() const { return impl_->lost_devices(); }
const LastStep& StepExecutor::last_step() const { return impl_->last_step(); }
std::vector<std::string> StepExecutor::take_notes() { return impl_->take_notes(); }
const partition::Plan& StepExecutor::plan() const { return impl_->plan(); }
void StepExecutor::clear_traces() { impl_->clear_traces(); }
void StepExecutor::take_spans(std::vector<TakenSpans>& devices, std::size_t& dropped) {
  impl_->take_spans(devices, dropped);
}
std::vector<const DeviceTrace*> StepExecutor::traces() const { return impl_->traces(); }

}  // namespace rondo::schedule
