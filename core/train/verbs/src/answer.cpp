#include "answer.h"

#include <algorithm>

#include "rondo/base/status.h"
#include "rondo/schedule/batch.h"
#include "rondo/train/host_account.h"
#include "text_stream.h"

namespace rondo::train {
namespace {

/// The weights one after another, each beside its numbers in the file: the most that is there at a time.
Bytes loading_bytes(const OpenModel& open) {
  Bytes loaded = 0;
  Bytes most = 0;
  for (const model::Parameter& parameter : open.architecture->parameters()) {
    loaded += parameter.bytes(open.architecture->method().dtype);
    const model::TensorView* tensor = open.files->find(parameter.name);
    most = std::max(most, loaded + (tensor != nullptr ? tensor->data.size() : 0));
  }
  return most;
}

}  // namespace

absl::StatusOr<std::vector<data::TokenId>> conversation_ids(const TextParts& text,
                                                            const nlohmann::ordered_json& messages) {
  nlohmann::ordered_json context = data::template_context(text.tokenizer);
  context["messages"] = messages;
  context["add_generation_prompt"] = true;
  RONDO_ASSIGN_OR_RETURN(const std::string rendered, text.chat_template->render(context));
  return text.tokenizer.encode(rendered, false).ids;
}

absl::StatusOr<std::vector<std::int32_t>> stop_ids_of(const OpenModel& open, const TextParts& text) {
  RONDO_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids,
                         model::load_stop_ids(open.documents, open.architecture->config()));
  const auto end = data::end_of_turn(text.renderer());
  if (end && std::ranges::count(ids, *end) == 0) ids.push_back(*end);
  return ids;
}

absl::Status check_prompt(std::string_view subject, std::span<const data::TokenId> ids,
                          const model::ModelConfig& model) {
  if (ids.empty()) return invalid_input("{}: it gives no token", subject);
  const data::TokenId largest = *std::max_element(ids.begin(), ids.end());
  if (largest < static_cast<std::int32_t>(model.vocab_size)) return absl::OkStatus();
  return invalid_input("{}: token {} lies outside the model's vocabulary of {}", subject, largest, model.vocab_size);
}

absl::Status check_host_memory(const Config& config, const OpenModel& open, std::uint32_t prompt_tokens,
                               std::uint32_t capacity, Machine& machine) {
  if (config.host_memory_limit.empty()) return absl::OkStatus();
  const std::uint32_t bucket = devices::token_bucket(prompt_tokens);
  Loader::Lengths lengths;
  lengths.longest = lengths.longest_sequence = bucket;
  lengths.buckets = {bucket};
  const auto programs = [&](devices::Device& device, std::uint32_t tokens) {
    return try_generation(*open.architecture, device, tokens, capacity);
  };
  RONDO_RETURN_IF_ERROR(
      count_host_taken(config, *open.architecture, lengths, memory_beside_drivers(machine), machine, programs));
  partition::MemoryTable needs = machine.shape.host_taken;
  const partition::DeviceShape& device = machine.shape.devices.front();
  if (device.host_taken != nullptr) {
    const auto& always = device.host_taken->always;
    needs.insert(needs.end(), always.begin(), always.end());
  }
  needs.emplace_back("weights", loading_bytes(open));
  needs.emplace_back("generation", schedule::BatchLayout(*open.architecture, bucket).total() +
                                       Bytes{open.architecture->config().vocab_size} * sizeof(float));
  const Bytes all = partition::total_of(needs);
  if (all <= machine.shape.host_budget_bytes) return absl::OkStatus();
  return resource_exhausted(
      "host memory: answering needs {} and {} may be used: raise host_memory_limit, or set quantization_bit for "
      "smaller weights",
      format_bytes(all), format_bytes(machine.shape.host_budget_bytes));
}

SamplingOptions sampling_options(const Config& config, std::vector<std::int32_t> stop_ids) {
  SamplingOptions options;
  options.max_new_tokens = config.max_new_tokens;
  options.temperature = config.temperature;
  options.top_k = config.top_k;
  options.top_p = config.top_p;
  options.seed = config.seed;
  options.stop_ids = std::move(stop_ids);
  return options;
}

absl::Status give_answer(Generator& generator, const data::Tokenizer& tokenizer, const SamplingOptions& options,
                         const std::function<void(std::string_view)>& on_text, Generation& generation) {
  TextStream stream(tokenizer);
  const auto show = [&](const std::string& piece) {
    if (on_text && !piece.empty()) on_text(piece);
  };
  RONDO_ASSIGN_OR_RETURN(generation.token_ids, generator.generate(generation.prompt_ids, options,
                                                                  [&](std::int32_t id) { show(stream.add(id)); }));
  show(stream.rest());
  generation.text = stream.text();
  const std::vector<std::int32_t>& given = generation.token_ids;
  const bool ended = !given.empty() && std::ranges::count(options.stop_ids, given.back()) > 0;
  const bool full = given.size() == options.max_new_tokens;
  generation.finish_reason = ended ? "stop" : full ? "length" : "interrupted";
  return absl::OkStatus();
}

}  // namespace rondo::train
