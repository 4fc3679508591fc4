#include "rondo/train/session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <tuple>

#include "advice.h"
#include "rondo/base/file.h"
#include "rondo/base/hash.h"
#include "rondo/base/status.h"
#include "rondo/data/mixture.h"
#include "rondo/data/template_source.h"
#include "rondo/devices/host_memory.h"
#include "rondo/devices/random.h"
#include "rondo/model/known_models.h"
#include "rondo/model/parameters.h"
#include "rondo/offload/scratch_file.h"
#include "rondo/partition/repeat.h"
#include "rondo/partition/slots.h"
#include "rondo/schedule/shape.h"
#include "rondo/train/code_choice.h"
#include "rondo/train/config_text.h"
#include "rondo/train/host_account.h"
#include "rondo/train/weights.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;

devices::DType dtype_of(const std::string& name) {
  if (name == "fp32") return devices::DType::kFloat32;
  return name == "fp16" ? devices::DType::kFloat16 : devices::DType::kBfloat16;
}

partition::Keep keep_of(const std::string& recompute) {
  if (recompute == "full") return partition::Keep::kNothing;
  return recompute == "none" ? partition::Keep::kAll : partition::Keep::kSelective;
}

absl::StatusOr<model::LoraConfig> lora_of(const Config& config, const model::ModelConfig& model) {
  model::LoraConfig lora;
  lora.rank = config.lora_rank;
  lora.alpha = config.lora_alpha;
  lora.dropout = config.lora_dropout;
  lora.use_rslora = config.use_rslora;
  lora.use_dora = config.use_dora;
  RONDO_ASSIGN_OR_RETURN(lora.alpha_pattern, model::parse_pattern(model, "alpha_pattern", config.alpha_pattern));
  RONDO_ASSIGN_OR_RETURN(const auto ranks, model::parse_pattern(model, "rank_pattern", config.rank_pattern));
  for (const auto& [name, rank] : ranks) {
    if (rank != std::floor(rank) || rank > 65536) {
      return invalid_input("rank_pattern: expected a whole number from 1 to 65536 for {}, found {}", name, rank);
    }
    lora.rank_pattern.emplace_back(name, static_cast<std::uint32_t>(rank));
  }
  for (const std::string& word : config::elements_of(config.layers_to_transform)) {
    std::uint32_t layer = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), layer);
    if (error != std::errc() || end != word.data() + word.size() || layer >= model.num_layers) {
      return invalid_input("layers_to_transform: expected numbers of blocks from 0 to {}, found {}",
                           model.num_layers - 1, word);
    }
    if (std::ranges::count(lora.layers, layer) == 0) lora.layers.push_back(layer);
  }
  std::ranges::sort(lora.layers);
  for (const std::string& word : config::elements_of(config.modules_to_save)) {
    if (word != "embed_tokens" && word != "lm_head") {
      return invalid_input("modules_to_save: expected names out of embed_tokens, lm_head, found {}", word);
    }
    if (!lora.saves(word)) lora.modules_to_save.push_back(word);
  }
  RONDO_RETURN_IF_ERROR(model::resolve_targets(model, config.lora_target, config.target_parameters, lora));
  return lora;
}

/// The sets that a key names. A file whose own name holds a comma is one.
std::vector<data::DataSource> sources_of(const std::string& names, const std::string& weights) {
  std::error_code ignored;
  std::vector<data::DataSource> sources;
  if (fs::exists(names, ignored)) {
    sources.push_back({names});
  } else {
    for (const std::string& name : config::elements_of(names)) sources.push_back({name});
  }
  // As many as names: the configuration was checked.
  const std::vector<double> numbers = config::numbers_of(weights).value_or(std::vector<double>());
  for (std::size_t i = 0; i < std::min(numbers.size(), sources.size()); ++i) sources[i].weight = numbers[i];
  return sources;
}

/// Of the cache that the processor's cores share; 0: not known.
Bytes last_cache() {
  const absl::StatusOr<std::string> size = read_file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  std::uint32_t kibibytes = 0;
  if (size.ok()) std::from_chars(size->data(), size->data() + size->size(), kibibytes);
  return Bytes{kibibytes} << 10U;
}

/// Bytes/s that reading and writing reach together, from a short copy on the pool, of more than a cache holds.
double measure_memory_bandwidth(devices::ThreadPool& threads) {
  constexpr std::size_t kPiece = 1U << 20U;
  const std::size_t pieces = std::clamp<std::size_t>(last_cache() / kPiece, 32, 128);
  std::vector<std::byte> from(pieces * kPiece, std::byte{1});
  std::vector<std::byte> to(pieces * kPiece);
  double best = 0;
  for (int i = 0; i < 4; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    threads.parallel_for(static_cast<std::int64_t>(pieces), [&](std::int64_t piece, std::uint32_t) {
      const auto offset = static_cast<std::size_t>(piece) * kPiece;
      std::memcpy(to.data() + offset, from.data() + offset, kPiece);
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::max(best, 2.0 * static_cast<double>(from.size()) / seconds);
  }
  return best;
}

/// AdamW moves 28 bytes a parameter (four fp32 arrays read, three written).
devices::HostProfile measured_host(devices::ThreadPool& threads) {
  devices::HostProfile host;
  host.memory_bytes = devices::available_memory();
  host.memory_bandwidth = measure_memory_bandwidth(threads);
  host.optimizer_parameters_per_second = host.memory_bandwidth / 28.0;
  return host;
}

/// Of the contents that tokenizer and template are made from.
absl::StatusOr<std::string> fingerprint_of(const Documents& documents) {
  ContentHash hash;
  RONDO_ASSIGN_OR_RETURN(const data::TemplateSources sources, data::chat_template_sources(documents));
  hash.add_text(sources.text.value_or(""));
  if (sources.for_tools) hash.add_text(*sources.for_tools);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json"}) {
    if (!documents.has(name)) continue;
    RONDO_ASSIGN_OR_RETURN(const std::string text, documents.read(name));
    hash.add_text(name);
    hash.add_text(text);
  }
  return hash.hex();
}

/// Where the run's tokens are kept.
fs::path prepared_folder(const Config& config) {
  if (config.dataset_prepared_path == "none") return {};
  if (!config.dataset_prepared_path.empty()) return config.dataset_prepared_path;
  const fs::path cache = user_cache_folder();
  return cache.empty() ? cache : cache / "prepared";
}

}  // namespace

absl::StatusOr<TextParts> open_text(const Documents& documents) {
  RONDO_ASSIGN_OR_RETURN(data::Tokenizer tokenizer, data::Tokenizer::load(documents));
  RONDO_ASSIGN_OR_RETURN(std::optional<data::ChatTemplate> chat, data::load_chat_template(documents));
  return TextParts{std::move(tokenizer), std::move(chat)};
}

absl::StatusOr<RunData> load_data(const Config& config, const Documents& documents, const TextParts& text) {
  data::DataOptions options;
  options.cutoff_len = config.cutoff_len;
  options.train_on_prompt = config.train_on_prompt;
  options.mask_history = config.mask_history;
  options.max_samples = config.max_samples;
  options.prepared = prepared_folder(config);
  constexpr std::pair<const char*, data::DataFormat> kFormats[] = {
      {"auto", data::DataFormat::kAuto},
      {"messages", data::DataFormat::kMessages},
      {"prompt_completion", data::DataFormat::kPromptCompletion},
      {"text", data::DataFormat::kText},
      {"alpaca", data::DataFormat::kAlpaca},
      {"sharegpt", data::DataFormat::kShareGpt},
      {"plain_text", data::DataFormat::kPlainText}};
  for (const auto& [name, format] : kFormats) {
    if (config.data_format == name) options.format = format;
  }
  data::Renderer renderer = text.renderer();
  RONDO_ASSIGN_OR_RETURN(renderer.fingerprint, fingerprint_of(documents));
  RunData run;
  if (!config.dataset.empty()) {
    RONDO_ASSIGN_OR_RETURN(run.train,
                           data::load_datasets(sources_of(config.dataset, config.dataset_weights), renderer, options));
  }
  if (!config.eval_dataset.empty()) {
    RONDO_ASSIGN_OR_RETURN(run.evaluation, data::load_datasets(sources_of(config.eval_dataset, ""), renderer, options));
  } else if (config.val_size > 0 && !run.train.samples.empty()) {
    auto parts = data::split_dataset(std::move(run.train), config.val_size, config.seed);
    if (!parts.ok()) return with_context(parts.status(), "val_size");
    std::tie(run.train, run.evaluation) = *std::move(parts);
  }
  return run;
}

offload::OptimizerSettings optimizer_of(const Config& config) {
  offload::OptimizerSettings settings{config.adam_beta1, config.adam_beta2, config.adam_epsilon, config.weight_decay};
  constexpr std::pair<const char*, offload::OptimizerKind> kKinds[] = {
      {"adamw", offload::OptimizerKind::kAdamW},
      {"adamw_8bit", offload::OptimizerKind::kAdamW8Bit},
      {"sgd", offload::OptimizerKind::kSgd},
      {"lion", offload::OptimizerKind::kLion}};
  for (const auto& [name, kind] : kKinds) {
    if (config.optim == name) settings.kind = kind;
  }
  settings.momentum = config.momentum;
  return settings;
}

LoaderOptions loader_options(const Config& config) {
  LoaderOptions options;
  options.batch_size = config.per_device_train_batch_size;
  options.accumulation = config.gradient_accumulation_steps;
  options.shuffle = config.shuffle;
  options.seed = config.seed;
  options.packing = config.packing ? config.cutoff_len : 0;
  return options;
}

LoaderOptions evaluation_options(const Config& config) {
  LoaderOptions options = loader_options(config);
  options.shuffle = false;
  options.seed = 0;
  return options;
}

absl::StatusOr<OpenModel> open_model(const Config& config, Purpose purpose, bool need_weights) {
  OpenModel open;
  model::ModelConfig model_config;
  absl::StatusOr<fs::path> folder = find_model(config.model_name_or_path, config.model_revision);
  const auto known = folder.ok() || need_weights ? std::nullopt : model::known_model(config.model_name_or_path);
  if (known) {
    model_config = *known;
  } else {
    RONDO_RETURN_IF_ERROR(folder.status());
    open.folder = *std::move(folder);
    RONDO_ASSIGN_OR_RETURN(open.documents, open_documents(open.folder));
    RONDO_ASSIGN_OR_RETURN(model_config, open_config(open.folder, open.documents));
  }
  const bool training = purpose == Purpose::kTrain;
  model::MethodSpec method;
  method.dtype = dtype_of(config.dtype);
  if (!config.adapter_name_or_path.empty()) {
    if (training && config.finetuning_type != "lora") {
      return invalid_input("adapter_name_or_path: an adapter cannot be trained with finetuning_type: {}, set lora",
                           config.finetuning_type);
    }
    RONDO_ASSIGN_OR_RETURN(OpenAdapter adapter, open_adapter(config.adapter_name_or_path, model_config));
    method.lora = std::move(adapter.lora);
    open.adapter_files = std::move(adapter.files);
    method.train_lora = training;
  } else if (training && config.finetuning_type == "lora") {
    RONDO_ASSIGN_OR_RETURN(method.lora, lora_of(config, model_config));
    method.train_lora = true;
  }
  method.lora_b_rate = config.loraplus_lr_ratio;
  if (training) method.noise_alpha = config.neftune_noise_alpha;
  method.train_weights = training && config.finetuning_type != "lora";
  if (config.finetuning_type == "freeze") {
    if (training && config.freeze_trainable_layers > model_config.num_layers) {
      return invalid_input("freeze_trainable_layers: expected at most the {} blocks of the model, found {}",
                           model_config.num_layers, config.freeze_trainable_layers);
    }
    method.trained_blocks = config.freeze_trainable_layers;
  }
  if (training && config.fp8) {
    method.fp8 = config.fp8_format == "hybrid" ? devices::Fp8Format::kHybrid : devices::Fp8Format::kE4m3;
  }
  method.keeps_mxfp4 = !method.train_weights && model_config.experts && model_config.experts->mxfp4;
  if (config.quantization_bit == 8) method.base_encoding = devices::Encoding::kInt8;
  if (config.quantization_bit == 4) method.base_encoding = devices::Encoding::kNf4;
  if (training && config.boundary_quantization_bit == 8) method.boundary_encoding = devices::Encoding::kHadamard8;
  if (training && config.boundary_quantization_bit == 4) method.boundary_encoding = devices::Encoding::kHadamard4;
  if (need_weights) {
    RONDO_ASSIGN_OR_RETURN(open.files, open_tensors(open.folder, model_config));
  }
  RONDO_ASSIGN_OR_RETURN(open.architecture, model::Architecture::make(model_config, method));
  return open;
}

void Machine::set_profile(std::size_t i, devices::DeviceProfile profile) {
  partition::DeviceShape& device = shape.devices[i];
  const devices::DeviceCaps& caps = pool[i].device->caps();
  if (!caps.unified_memory && caps.does_arithmetic) {
    const transfer::EngineOptions link =
        schedule::link_options(profile, schedule::can_recover(pool.size()), verifies, {});
    device.staging_bytes = link.chunk_bytes;
    for (const auto direction : {transfer::Direction::kUp, transfer::Direction::kDown}) {
      device.staging_pieces[static_cast<std::size_t>(direction)] =
          transfer::TransferEngine::staging_pieces(direction, link);
    }
  }
  pool[i].profile = profile;
  device.profile = std::move(profile);
}

absl::StatusOr<Machine> open_machine(const Config& config) {
  Machine machine;
  machine.threads = std::make_unique<devices::ThreadPool>(config.threads);
  const Bytes before = own_memory();
  RONDO_ASSIGN_OR_RETURN(machine.pool, devices::open_pool({config.devices, config.memory_limit}, *machine.threads));
  if (std::ranges::any_of(machine.pool, &devices::PoolMember::has_driver)) {
    const Bytes opened = own_memory();
    machine.opened_drivers = opened - std::min(opened, before);
  }
  machine.phantom = std::ranges::any_of(
      machine.pool, [](const devices::PoolMember& member) { return !member.device->caps().does_arithmetic; });
  machine.verifies = config.verify_transfers && !machine.phantom;  // nothing arrives where only time is taken
  const devices::DType dtype = dtype_of(config.dtype);
  for (const devices::PoolMember& member : machine.pool) {
    const devices::DeviceCaps& caps = member.device->caps();
    if (std::ranges::count(caps.compute_dtypes, dtype) == 0) {
      return invalid_input("dtype: {} does not compute in {}, set dtype: {} or fp32", caps.name, config.dtype,
                           dtype == devices::DType::kBfloat16 ? "fp16" : "bf16");
    }
    if (config.fp8 && !caps.fp8) {
      return invalid_input(
          "fp8: {} multiplies no numbers of 8 bits; NVIDIA cards from compute capability 8.9 on and processors do "
          "(devices: cuda:0, cpu, or to plan for a card timed:rtx4090)",
          caps.name);
    }
    partition::DeviceShape shape;
    shape.name = caps.name;
    shape.budget_bytes = caps.memory_bytes;
    shape.unified_memory = caps.unified_memory;
    shape.weights_in_place = caps.weights_in_place;
    shape.on_host = member.on_host();
    shape.most_block_bytes = caps.most_block_bytes;
    machine.shape.devices.push_back(std::move(shape));
    machine.set_profile(machine.shape.devices.size() - 1, member.profile);
    if (machine.numerics_class.find(caps.numerics_class) == std::string::npos) {
      machine.numerics_class += (machine.numerics_class.empty() ? "" : "+") + caps.numerics_class;
    }
  }
  if (config.host.empty()) {
    machine.host = measured_host(*machine.threads);
  } else {
    RONDO_ASSIGN_OR_RETURN(machine.host, devices::load_host_profile(config.host));
  }
  machine.shape.host = machine.host;
  machine.shape.copies_use_host_memory = !machine.phantom;
  machine.shape.host_budget_bytes = machine.host.memory_bytes;
  if (machine.phantom && config.host.empty()) machine.shape.host_budget_bytes = ~Bytes{0} / 4;
  if (!config.host_memory_limit.empty()) {
    const absl::StatusOr<Bytes> limit = devices::parse_bytes(config.host_memory_limit);
    if (!limit.ok()) return with_context(limit.status(), "host_memory_limit");
    machine.shape.host_budget_bytes = *limit;
  }
  if (!config.nvme_path.empty()) {
    machine.disk_folder = config.nvme_path;
    // A little stays free: a file takes more than its bytes.
    machine.shape.disk_budget_bytes = offload::free_disk_bytes(config.nvme_path) / 100 * 98;
    // Whether a file can be made there is said now, whatever the plan comes to need.
    if (!machine.phantom) RONDO_RETURN_IF_ERROR(offload::ScratchFile::make(config.nvme_path, 0).status());
  }
  return machine;
}

Loader::Lengths assumed_lengths(const Config& config) {
  Loader::Lengths lengths;
  lengths.longest = config.cutoff_len * config.per_device_train_batch_size;
  lengths.longest_sequence = config.cutoff_len;
  lengths.mean = lengths.longest;
  lengths.buckets = {devices::token_bucket(lengths.longest)};
  return lengths;
}

data::Dataset assumed_data(const Config& config, std::uint32_t vocabulary) {
  constexpr std::uint64_t kOwn = 64;  // samples of their own, which then come again
  const std::uint64_t samples = std::uint64_t{config.per_device_train_batch_size} * config.gradient_accumulation_steps;
  const double range = std::log(static_cast<double>(vocabulary));
  data::Dataset dataset;
  for (std::uint64_t i = 0; i < std::min(samples, kOwn); ++i) {
    data::Sample sample;
    for (std::uint64_t t = 0; t < config.cutoff_len; ++t) {
      const auto place = static_cast<double>(devices::uniform_float(devices::combine_keys(i, t)));
      const auto rank = static_cast<std::int32_t>(std::exp(range * place)) - 1;
      sample.ids.push_back(std::clamp(rank, 0, static_cast<std::int32_t>(vocabulary) - 1));
    }
    sample.labels = sample.ids;
    dataset.samples.push_back(sample);
  }
  std::vector<std::uint32_t> numbers;
  for (std::uint64_t i = 0; i < samples; ++i) numbers.push_back(static_cast<std::uint32_t>(i % kOwn));
  dataset.samples = dataset.samples.select(numbers);
  dataset.report.path = "none";
  dataset.report.format = "none: every sequence counts as cutoff_len tokens";
  dataset.report.records = dataset.samples.size();
  dataset.report.kept = dataset.samples.size();
  dataset.report.longest = config.cutoff_len;
  return dataset;
}

bool chooses_codes(const Config& config) { return config.quantization_bit == 4 && config.quantization_tokens > 0; }

namespace {

/// Of the moments, what is not resident before the first update.
Bytes untouched_moments(const model::Architecture& model, const offload::OptimizerSettings& optimizer) {
  Bytes untouched = 0;
  for (const model::Parameter& parameter : model.parameters()) {
    if (!parameter.trained) continue;
    const offload::StateLayout state = offload::state_layout(optimizer, parameter.elements());
    for (const offload::MomentFormat moment : {state.first, state.second}) {
      const Bytes bytes = offload::moment_bytes(moment, parameter.elements());
      if (bytes >= devices::kMapFrom) untouched += bytes;
    }
  }
  return untouched;
}

/// Choosing codes takes `choice` before there is what the steps take: where that is more, the plan says by how much.
absl::Status count_choice(Bytes choice, const model::Architecture& model, const Machine& machine, PlannedRun& run) {
  partition::Plan& plan = run.plan;
  Bytes steps = plan.host_peak_bytes;
  for (std::size_t i = 0; i < machine.pool.size(); ++i) {
    if (machine.pool[i].device->caps().memory_in_process) steps += plan.devices[i].peak_bytes;
  }
  // Neither what the plan's devices work in nor gradients are there yet, and nothing is written.
  Bytes before = choice;
  for (const auto& [purpose, bytes] : machine.shape.host_taken) {
    if (purpose != kWriting) before += bytes;
  }
  for (const auto& [purpose, bytes] : plan.host) {
    if (purpose == partition::kGradients) continue;
    const bool is_models = std::ranges::any_of(run.shape.host_bytes,
                                               [&purpose = purpose](const auto& one) { return one.first == purpose; });
    if (is_models) before += bytes;
    if (purpose == partition::kMoments) before -= std::min(bytes, untouched_moments(model, run.optimizer));
  }
  if (before <= steps) return absl::OkStatus();
  plan.host.emplace_back(kChoosingCodes, before - steps);
  plan.host_peak_bytes += before - steps;
  if (plan.host_peak_bytes <= machine.shape.host_budget_bytes) return absl::OkStatus();
  return resource_exhausted(
      "host memory: choosing 4-bit codes needs {} and {} may be used: set quantization_tokens: 0 for the nearest codes",
      format_bytes(plan.host_peak_bytes), format_bytes(machine.shape.host_budget_bytes));
}

/// Beside what a refused plan says: the settings that the planner does not know of.
std::string what_else_helps(const Config& config, const model::Architecture& model, const Machine& machine,
                            const PlannedRun& run, Purpose purpose) {
  const Bytes least = partition::total_of(
      partition::least_host_memory(run.shape, run.work, machine.shape, machine.shape.disk_budget_bytes));
  if (purpose == Purpose::kTrain && least > machine.shape.host_budget_bytes) {
    if (config.finetuning_type != "lora") return ", or set finetuning_type: lora";
    if (config.quantization_bit == 0) return ", or set quantization_bit: 8 or 4";
  }
  if (run.shape.holds_state) return ", or optimizer_state: host";
  if (model.method().trains_expert_factors()) {
    return ", or adapt attention alone: " + model::attention_alone(model.config());
  }
  return {};
}

}  // namespace

absl::StatusOr<PlannedRun> plan_on_known(const Config& config, const model::Architecture& model, const Machine& machine,
                                         const Loader::Lengths& lengths, Purpose purpose,
                                         const partition::Plan* dealt) {
  PlannedRun run;
  run.buckets = lengths.buckets;
  run.optimizer = optimizer_of(config);
  const std::uint32_t staleness = purpose == Purpose::kTrain ? config.staleness : 0;
  run.shape =
      schedule::describe_model(model, lengths.longest, lengths.longest_sequence, staleness, run.optimizer, run.buckets);
  const std::uint32_t microbatches = purpose == Purpose::kTrain ? config.gradient_accumulation_steps : 1;
  const std::uint32_t group = config.reduction_group != 0 ? std::min(config.reduction_group, microbatches)
                                                          : std::min<std::uint32_t>(microbatches, 16);
  run.work = schedule::describe_workload(model, lengths.longest, lengths.mean, microbatches, group);
  run.work.staleness = staleness;
  run.work.resident_weights = config.resident_weights;
  run.work.sequence_length = lengths.longest_sequence;
  run.work.microbatch_sequences = config.per_device_train_batch_size;
  run.request.schedule = partition::executable_schedule(config.schedule).value_or(partition::Schedule::kRoundPipe);
  if (config.recompute != "auto") run.request.keep = keep_of(config.recompute);
  const bool holds_state = purpose == Purpose::kTrain && config.optimizer_state == "device";
  if (holds_state) {
    RONDO_RETURN_IF_ERROR(check_holds_state(machine, run.work));
    run.shape = partition::hold_state(std::move(run.shape));
  }
  absl::StatusOr<partition::Plan> plan = dealt != nullptr
                                             ? partition::repeat_plan(*dealt, run.shape, run.work, machine.shape)
                                             : partition::make_plan(run.shape, run.work, machine.shape, run.request);
  if (!plan.ok()) {
    return absl::Status(plan.status().code(),
                        message_of(plan.status()) + what_else_helps(config, model, machine, run, purpose));
  }
  run.plan = *std::move(plan);
  if (purpose == Purpose::kTrain) advise(config, model, machine, run);
  std::vector<std::string>& all = run.plan.predicted.advice;
  all.insert(all.end(), run.advice.begin(), run.advice.end());
  if (purpose == Purpose::kTrain && chooses_codes(config)) {
    const Bytes choice = choice_bytes(model, lengths, config.quantization_tokens, *machine.threads);
    RONDO_RETURN_IF_ERROR(count_choice(choice, model, machine, run));
  }
  return run;
}

absl::Status find_disk_speed(const Config& config, Machine& machine, Bytes most) {
  if (config.nvme_path.empty() || machine.phantom || machine.host.disk_bandwidth != 0) return absl::OkStatus();
  RONDO_ASSIGN_OR_RETURN(machine.host.disk_bandwidth, offload::measure_disk(config.nvme_path, most));
  machine.shape.host = machine.host;
  return absl::OkStatus();
}

absl::StatusOr<PlannedRun> plan_run(const Config& config, const model::Architecture& model, Machine& machine,
                                    const Loader::Lengths& lengths, Purpose purpose, const partition::Plan* dealt) {
  absl::StatusOr<PlannedRun> run = plan_on_known(config, model, machine, lengths, purpose, dealt);
  const double known = machine.host.disk_bandwidth;
  if (!run.ok() || run->plan.disk_bytes == 0) return run;
  // The file is a part of `disk_bytes`, the most that lies there at once, in case the second plan has less there.
  RONDO_RETURN_IF_ERROR(find_disk_speed(config, machine, run->plan.disk_bytes / 4));
  if (machine.host.disk_bandwidth == known) return run;
  return plan_on_known(config, model, machine, lengths, purpose, dealt);
}

absl::StatusOr<offload::ParameterStore> open_store(const Config& config, const OpenModel& model, const Machine& machine,
                                                   const partition::Plan& plan,
                                                   const std::vector<schedule::Microbatch>& samples,
                                                   const Progress& progress) {
  const model::Architecture& architecture = *model.architecture;
  const offload::DiskPlacement disk{config.nvme_path, schedule::parameters_on_disk(architecture, plan)};
  RONDO_ASSIGN_OR_RETURN(
      offload::ParameterStore store,
      offload::ParameterStore::make(schedule::parameter_specs(architecture, optimizer_of(config)),
                                    architecture.method().dtype, machine.phantom, disk, 1 + config.staleness));
  if (!machine.phantom) {
    const model::TensorFiles* adapter = model.adapter_files ? &*model.adapter_files : nullptr;
    RONDO_RETURN_IF_ERROR(load_weights(architecture, *model.files, adapter, store, progress));
    if (!samples.empty()) {
      RONDO_RETURN_IF_ERROR(choose_codes(architecture, *model.files, samples, *machine.threads, store, progress));
    }
    if (adapter == nullptr) RONDO_RETURN_IF_ERROR(init_factors(architecture, config.seed, store));
  }
  return store;
}

schedule::ExecutorParts executor_parts(const OpenModel& model, const Machine& machine, const PlannedRun& run,
                                       offload::ParameterStore& store) {
  schedule::ExecutorParts parts;
  parts.model = &*model.architecture;
  parts.plan = &run.plan;
  parts.shape = &run.shape;
  parts.work = run.work;
  parts.optimizer = run.optimizer;
  for (const devices::PoolMember& member : machine.pool) parts.devices.push_back({member.device.get(), member.profile});
  parts.parameters = &store;
  parts.threads = machine.threads.get();
  parts.host = machine.host;
  parts.disk_folder = machine.disk_folder;
  parts.buckets = run.buckets;
  parts.recovery.machine = machine.shape;
  parts.recovery.request = run.request;
  parts.recovery.verify_transfers = machine.verifies;
  return parts;
}

}  // namespace rondo::train
