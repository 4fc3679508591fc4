// What the trainer tells of itself: the summary before the run and a report for every step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "rondo/data/describe.h"
#include "rondo/devices/host_memory.h"
#include "rondo/train/host_account.h"
#include "trainer.h"

namespace rondo::train {
namespace {

using Clock = std::chrono::steady_clock;

std::string millions(double parameters) { return fmt::format("{:.1f} M", parameters / 1e6); }

}  // namespace

nlohmann::ordered_json to_json(const StepReport& report) {
  nlohmann::ordered_json memory = nlohmann::ordered_json::object();
  for (const auto& [name, bytes] : report.memory) memory[name] = bytes;
  nlohmann::ordered_json line = {{"kind", "train"}, {"step", report.step}, {"epoch", report.epoch}};
  if (report.loss) line["loss"] = *report.loss;
  line["learning_rate"] = report.learning_rate;
  if (report.grad_norm) line["grad_norm"] = *report.grad_norm;
  line.update({{"target_tokens", report.target_tokens},
               {"tokens", report.tokens},
               {"tokens_per_second", report.tokens_per_second},
               {"step_seconds", report.step_seconds},
               {"data_seconds", report.data_seconds},
               {"elapsed_seconds", report.elapsed_seconds},
               {"remaining_seconds", report.remaining_seconds},
               {"sol", report.sol},
               {"bubble", report.bubble},
               {"limited_by", report.limited_by},
               {"skipped_steps", report.skipped_steps},
               {"retries", report.retries},
               {"lost_devices", report.lost_devices},
               {"memory", std::move(memory)}});
  if (report.loss_scale) line["loss_scale"] = *report.loss_scale;
  return line;
}

/// Forward once and the gradients, nothing computed twice.
double Trainer::necessary_flops(double tokens) const {
  double flops = 0;
  const std::size_t last = planned_.shape.layers.size() - 1;
  for (std::size_t i = 0; i <= last; ++i) {
    const partition::LayerShape& layer = planned_.shape.layers[i];
    if (layer.head_part) {  // alone it would compute its logits twice
      flops += layer.fused.flops();
      continue;
    }
    if (i < last || !layer.has_backward) flops += layer.forward.flops();
    flops += layer.backward[static_cast<std::size_t>(partition::Keep::kAll)].flops();
  }
  return flops * tokens / static_cast<double>(planned_.work.microbatch_tokens);
}

/// The bubble is of the devices that the plan uses, by what each could have computed.
Trainer::Interval Trainer::take_interval() {
  const Clock::time_point now = Clock::now();
  const std::vector<double> computed = executor_->compute_seconds();
  const double seconds = std::chrono::duration<double>(now - std::exchange(last_end_, now)).count();
  const std::vector<double> before = std::exchange(computed_, computed);
  std::vector<bool> used(computed.size(), false);
  for (const partition::Slot& slot : executor_->plan().slots) used[slot.device] = true;
  double possible = 0;
  double done = 0;
  for (std::size_t i = 0; i < computed.size(); ++i) {
    if (!used[i]) continue;
    const double speed = machine_.pool[i].profile.speed(planned_.work.dtype);
    possible += speed * seconds;
    done += speed * (computed[i] - before[i]);
  }
  return {seconds, possible > 0 ? std::clamp(1.0 - done / possible, 0.0, 1.0) : 0.0};
}

/// The executor counts the steps of this program's run, whatever the run's own number.
void Trainer::watch_programs(const std::vector<schedule::Microbatch>& batches) {
  std::vector<std::uint32_t> buckets;
  for (const schedule::Microbatch& batch : batches) {
    buckets.push_back(devices::token_bucket(static_cast<std::uint32_t>(batch.ids.size())));
  }
  const auto step = static_cast<std::uint32_t>(state_.global_step - first_step_);
  for (const schedule::DeviceTrace* trace : executor_->traces()) {
    programs_->step(executor_->plan(), trace->name(), trace->spans(), buckets, step);
  }
}

std::vector<std::pair<std::string, Bytes>> Trainer::memory_use() const {
  std::vector<std::pair<std::string, Bytes>> memory;
  Bytes stands_for_devices = 0;
  for (const devices::PoolMember& member : machine_.pool) {
    const Bytes bytes = member.device->peak_bytes();
    memory.emplace_back(member.device->caps().name, bytes);
    if (member.device->caps().memory_in_process) stands_for_devices += bytes;
  }
  const Bytes peak = devices::process_memory().peak;
  const Bytes other = devices::program_memory() + stands_for_devices;
  memory.emplace_back("host", peak > other ? peak - other : 0);
  return memory;
}

RunSummary Trainer::summary() {
  const model::Architecture& model = *model_.architecture;
  RunSummary summary;
  double parameters = 0;
  double trained = 0;
  for (const model::Parameter& parameter : model.parameters()) {
    const bool factor = parameter.kind == model::WeightKind::kLoraA || parameter.kind == model::WeightKind::kLoraB ||
                        parameter.kind == model::WeightKind::kMagnitude;
    if (!factor) parameters += static_cast<double>(parameter.elements());
    if (parameter.trained) trained += static_cast<double>(parameter.elements());
  }
  summary.model = fmt::format("{}: {}, {} blocks, {} parameters, {}", model_.folder.string(), model.config().model_type,
                              model.config().num_layers, millions(parameters), config_.dtype);
  if (const auto& lora = model.method().lora) {
    std::vector<std::string> adapted = lora->targets;
    adapted.insert(adapted.end(), lora->parameters.begin(), lora->parameters.end());
    summary.method = fmt::format("{} of rank {} on {}: {} trained parameters", lora->use_dora ? "DoRA" : "LoRA",
                                 lora->rank, fmt::join(adapted, ", "), millions(trained));
  } else {
    summary.method = fmt::format("{}: {} trained parameters", config_.finetuning_type, millions(trained));
  }
  summary.data = data_.train.report;
  summary.evaluation = data_.evaluation.report;
  if (text_) {
    summary.sample_text = data::describe_sample(text_->tokenizer, data_.train.samples.front(), false);
    summary.sample_text_coloured = data::describe_sample(text_->tokenizer, data_.train.samples.front(), true);
  }
  summary.total_steps = total_steps_;
  summary.first_step = first_step_;
  summary.resumed_from = resumed_from_;
  for (std::size_t i = 0; i < machine_.pool.size(); ++i) {
    const partition::DevicePlan& device = planned_.plan.devices[i];
    if (!device.unused_because.empty()) {
      summary.unused_devices.emplace_back(device.name, device.unused_because);
    } else {
      summary.memory.emplace_back(device.name, device.memory);
    }
  }
  partition::MemoryTable host = host_account(machine_);
  for (const auto& taken : partition::host_taken(machine_.shape, planned_.plan.slots)) {
    const bool is_there = std::ranges::any_of(host, [&taken](const auto& entry) { return entry.first == taken.first; });
    if (!is_there) host.push_back(taken);
  }
  for (const auto& entry : planned_.plan.host) {
    if (entry.first == kChoosingCodes) host.push_back(entry);
  }
  summary.memory.emplace_back("host", std::move(host));
  if (planned_.plan.disk_bytes > 0) summary.memory.emplace_back("disk", planned_.plan.disk);
  // The first step of an epoch has as many microbatches as any: fewer than asked for where the data are few.
  const bool is_known = !config_.dataset.empty();
  const std::size_t most = is_known ? loader_->samples_of(0).size() : planned_.work.microbatches;
  summary.predicted = partition::predict_short_steps(planned_.plan, planned_.shape, planned_.work, machine_.shape,
                                                     static_cast<std::uint32_t>(most));
  if (config_.packing) summary.notes.push_back(data::describe_packing(loader_->packing()));
  summary.notes.insert(summary.notes.end(), planned_.advice.begin(), planned_.advice.end());
  return summary;
}

absl::Status Trainer::log_step(std::uint64_t step, const schedule::StepResult& result,
                               const std::vector<schedule::Microbatch>& batches, const Interval& interval,
                               double rate) {
  StepReport report;
  report.step = step;
  report.total_steps = total_steps_;
  report.epoch = state_.epoch;
  report.target_tokens = result.target_tokens;
  const bool without_loss = result.skipped && !result.overflowed;  // of no targets
  const double loss = without_loss ? 0.0 : result.loss_sum / static_cast<double>(result.target_tokens);
  report.learning_rate = rate;
  if (!machine_.phantom) {
    report.loss = loss;
    report.grad_norm = result.grad_norm;
  }
  if (state_.scales_loss) report.loss_scale = result.loss_scale;
  for (const schedule::Microbatch& batch : batches) report.tokens += batch.ids.size();
  const Clock::time_point now = Clock::now();
  report.step_seconds = interval.seconds;
  report.data_seconds = std::exchange(data_seconds_, 0.0);
  report.tokens_per_second = static_cast<double>(report.tokens) / std::max(interval.seconds, 1e-9);
  report.elapsed_seconds = std::chrono::duration<double>(now - started_).count();
  const auto done = static_cast<double>(step - first_step_);
  report.remaining_seconds = report.elapsed_seconds / done * static_cast<double>(total_steps_ - step);
  if (!without_loss) report.sol = light_.share(necessary_flops(static_cast<double>(report.tokens)), interval.seconds);
  report.bubble = interval.bubble;
  if (programs_->watches()) watch_programs(batches);
  executor_->clear_traces();
  report.limited_by = executor_->plan().predicted.limited_by;
  report.skipped_steps = state_.skipped_steps;
  report.retries = executor_->retries();
  report.lost_devices = executor_->lost_devices().size();
  report.memory = memory_use();
  if (!result.skipped && !machine_.phantom) {
    const std::optional<Spike> spike = losses_.take(loss);
    if (spike) {
      observer_.on_note(
          describe_spike(step, loss, *spike, records_of(*loader_, data_.train, step - 1), data_.train.report.path));
    }
  }
  if (step % state_.logging_steps != 0 && step != total_steps_) return absl::OkStatus();
  if (!result.skipped) {
    state_.log_history.push_back({step, report.epoch, loss, result.grad_norm, report.learning_rate, false});
  }
  observer_.on_step(report);
  return metrics_ ? metrics_->write(to_json(report)) : absl::OkStatus();
}

}  // namespace rondo::train
