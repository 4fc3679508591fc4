#include "answer.h"

#include <algorithm>

#include "rondo/base/status.h"
#include "text_stream.h"

namespace rondo::train {

absl::StatusOr<std::vector<data::TokenId>> conversation_ids(const TextParts& text,
                                                            const nlohmann::ordered_json& messages) {
  nlohmann::ordered_json context = data::template_context(text.tokenizer);
  context["messages"] = messages;
  context["add_generation_prompt"] = true;
  RONDO_ASSIGN_OR_RETURN(const std::string rendered, text.chat_template->render(context));
  return text.tokenizer.encode(rendered, false).ids;
}

absl::Status check_prompt(std::string_view subject, std::span<const data::TokenId> ids,
                          const model::ModelConfig& model) {
  if (ids.empty()) return invalid_input("{}: it gives no token", subject);
  const data::TokenId largest = *std::max_element(ids.begin(), ids.end());
  if (largest < static_cast<std::int32_t>(model.vocab_size)) return absl::OkStatus();
  return invalid_input("{}: token {} lies outside the model's vocabulary of {}", subject, largest, model.vocab_size);
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
