// The verbs other than train.
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "answer.h"
#include "exact_match.h"
#include "rondo/base/status.h"
#include "rondo/data/describe.h"
#include "rondo/devices/pool.h"
#include "rondo/model/init.h"
#include "rondo/partition/layout.h"
#include "rondo/schedule/executor.h"
#include "rondo/train/generator.h"
#include "rondo/train/host_account.h"
#include "rondo/train/run.h"
#include "rondo/train/session.h"
#include "run_recorder.h"
#include "tensorboard.h"
#include "trainer.h"

namespace rondo::train {

namespace {

absl::StatusOr<RunOutcome> run_to_its_end(const Config& config, RunObserver& observer, StopRequest& stop) {
  auto trainer = std::make_unique<Trainer>(config, observer, stop);
  absl::StatusOr<RunOutcome> outcome = trainer->run();
  Trainer::close(std::move(trainer));
  return outcome;
}

}  // namespace

absl::StatusOr<RunOutcome> run_training(const Config& config, RunObserver& observer, StopRequest& stop) {
  if (config.dry_run) return run_to_its_end(config, observer, stop);
  TensorboardReporter tensorboard(config, observer);
  RunRecorder recorder(config, tensorboard);
  absl::StatusOr<RunOutcome> outcome = run_to_its_end(config, recorder, stop);
  recorder.end(outcome);
  return outcome;
}

absl::StatusOr<Evaluation> run_evaluation(const Config& config, RunObserver& observer) {
  Config one = config;
  one.dataset = config.eval_dataset;
  one.eval_dataset.clear();
  one.dataset_weights.clear();
  one.val_size = 0;
  RONDO_ASSIGN_OR_RETURN(Machine machine, open_machine(config));
  if (machine.phantom) return invalid_input("devices: {} does no arithmetic: there is no loss", config.devices);
  RONDO_ASSIGN_OR_RETURN(OpenModel open, open_model(config, Purpose::kEvaluate, true));
  RONDO_ASSIGN_OR_RETURN(TextParts text, open_text(open.documents));
  if (config.exact_match) {  // what would stop it at last, it is told before the evaluation
    RONDO_RETURN_IF_ERROR(model::load_stop_ids(open.documents, open.architecture->config()).status());
  }
  RONDO_ASSIGN_OR_RETURN(const RunData data, load_data(one, open.documents, text));
  observer.on_note(data::describe_report(data.train.report));
  LoaderOptions options = evaluation_options(config);
  options.accumulation = 1;
  Loader loader(data.train, options);
  const Loader::Lengths lengths = loader.lengths(loader.steps_per_epoch());
  one.gradient_accumulation_steps = 1;
  RONDO_RETURN_IF_ERROR(count_host_taken(one, *open.architecture, lengths, memory_beside_drivers(machine), machine));
  RONDO_ASSIGN_OR_RETURN(PlannedRun planned,
                         plan_run(config, *open.architecture, machine, lengths, Purpose::kEvaluate));
  RONDO_ASSIGN_OR_RETURN(offload::ParameterStore store,
                         open_store(config, open, machine, {}, {}, progress_to(observer)));
  schedule::ExecutorParts parts = executor_parts(open, machine, planned, store);
  RONDO_ASSIGN_OR_RETURN(auto executor, schedule::StepExecutor::make(parts));
  Evaluation evaluation;
  double sum = 0;
  for (std::uint64_t step = 0; step < loader.steps_per_epoch(); ++step) {
    const absl::StatusOr<schedule::StepResult> result = executor->evaluate(loader.step(step));
    for (const std::string& note : executor->take_notes()) observer.on_note(note);
    RONDO_RETURN_IF_ERROR(result.status());
    sum += result->loss_sum;
    evaluation.target_tokens += result->target_tokens;
  }
  evaluation.eval_loss = sum / static_cast<double>(evaluation.target_tokens);
  evaluation.perplexity = std::exp(evaluation.eval_loss);
  if (!std::isfinite(evaluation.eval_loss)) return internal_error("the evaluation loss is not finite");
  if (config.exact_match) {
    executor.reset();  // its memory on the device is the generator's now
    RONDO_ASSIGN_OR_RETURN(const ExactMatch match, measure_exact_match(config, open, text, data.train, store,
                                                                       *machine.pool.front().device, observer));
    evaluation.samples = match.samples;
    evaluation.matches = match.matches;
  }
  return evaluation;
}

namespace {

absl::StatusOr<std::vector<data::TokenId>> prompt_ids(const Config& config, const TextParts& text) {
  if (config.raw) return text.tokenizer.encode(config.prompt, true).ids;
  if (!text.chat_template) {
    return invalid_input("model_name_or_path: {} has no chat template: use --raw to give the prompt as it is",
                         config.model_name_or_path);
  }
  const nlohmann::ordered_json turn = {{"role", "user"}, {"content", config.prompt}};
  return conversation_ids(text, nlohmann::ordered_json::array({turn}));
}

}  // namespace

absl::StatusOr<Generation> run_generation(const Config& config, const std::function<void(std::string_view)>& on_text) {
  RONDO_ASSIGN_OR_RETURN(Machine machine, open_machine(config));
  if (machine.phantom) return invalid_input("devices: {} does no arithmetic: it cannot answer", config.devices);
  RONDO_ASSIGN_OR_RETURN(OpenModel open, open_model(config, Purpose::kEvaluate, true));
  RONDO_ASSIGN_OR_RETURN(TextParts text, open_text(open.documents));
  Generation generation;
  RONDO_ASSIGN_OR_RETURN(generation.prompt_ids, prompt_ids(config, text));
  RONDO_RETURN_IF_ERROR(check_prompt("prompt", generation.prompt_ids, open.architecture->config()));
  RONDO_ASSIGN_OR_RETURN(
      std::vector<std::int32_t> stop_ids,
      config.raw ? model::load_stop_ids(open.documents, open.architecture->config()) : stop_ids_of(open, text));
  const SamplingOptions options = sampling_options(config, std::move(stop_ids));
  const auto prompt_tokens = static_cast<std::uint32_t>(generation.prompt_ids.size());
  const std::uint32_t capacity = prompt_tokens + config.max_new_tokens;
  RONDO_RETURN_IF_ERROR(check_host_memory(config, open, prompt_tokens, capacity, machine));
  RONDO_ASSIGN_OR_RETURN(offload::ParameterStore store, open_store(config, open, machine));
  RONDO_ASSIGN_OR_RETURN(const auto generator, Generator::make(*open.architecture, store, *machine.pool.front().device,
                                                               prompt_tokens, capacity));
  RONDO_RETURN_IF_ERROR(give_answer(*generator, text.tokenizer, options, on_text, generation));
  return generation;
}

absl::StatusOr<DataView> run_data(const Config& config, bool colour) {
  RONDO_ASSIGN_OR_RETURN(const std::filesystem::path folder,
                         find_model(config.model_name_or_path, config.model_revision));
  RONDO_ASSIGN_OR_RETURN(const Documents documents, open_documents(folder));
  RONDO_ASSIGN_OR_RETURN(TextParts text, open_text(documents));
  Config whole = config;
  whole.val_size = 0;
  whole.eval_dataset.clear();
  RONDO_ASSIGN_OR_RETURN(RunData data, load_data(whole, documents, text));
  DataView view;
  const std::size_t count = std::min<std::size_t>(config.samples, data.train.samples.size());
  for (std::size_t i = 0; i < count; ++i) {
    view.texts.push_back(data::describe_sample(text.tokenizer, data.train.samples[i], colour));
  }
  if (config.packing) view.packing = Loader(data.train, loader_options(config)).packing();
  view.dataset = std::move(data.train);
  return view;
}

absl::StatusOr<std::string> run_init(const Config& config) {
  model::InitOptions options;
  options.arch = config.arch;
  options.hidden_size = config.hidden_size;
  options.intermediate_size = config.intermediate_size;
  options.num_hidden_layers = config.num_hidden_layers;
  options.num_attention_heads = config.num_attention_heads;
  options.num_key_value_heads = config.num_key_value_heads;
  options.head_dim = config.head_dim;
  options.vocab_size = config.vocab_size;
  options.max_position_embeddings = config.max_position_embeddings;
  options.rope_theta = config.rope_theta;
  options.num_experts = config.num_experts;
  options.num_experts_per_tok = config.num_experts_per_tok;
  options.moe_intermediate_size = config.moe_intermediate_size;
  options.tie_word_embeddings = config.tie_word_embeddings;
  options.seed = config.seed;
  RONDO_ASSIGN_OR_RETURN(options.weight_type, model::parse_weight_type(config.dtype));
  RONDO_RETURN_IF_ERROR(model::init_model(options, config.output_dir));
  return config.output_dir;
}

}  // namespace rondo::train
