// What `generate` and `chat` share: from messages to the prompt's tokens, and from them to an answer.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/model/config.h"
#include "rondo/train/config.h"
#include "rondo/train/generator.h"
#include "rondo/train/run.h"
#include "rondo/train/session.h"

namespace rondo::train {

/// The messages as the chat template renders them, with the opening of an answer. REQUIRES: text.chat_template. Errors:
/// InvalidArgument when the template refuses them.
absl::StatusOr<std::vector<data::TokenId>> conversation_ids(const TextParts& text,
                                                            const nlohmann::ordered_json& messages);

/// What ends an answer in a conversation: the tokens that the model's files name (model::load_stop_ids) and the one
/// with which the chat template ends a turn. Of a base model that was trained on conversations files name another.
absl::StatusOr<std::vector<std::int32_t>> stop_ids_of(const OpenModel& open, const TextParts& text);

/// Errors: InvalidArgument, beginning with `subject`, when there is no token or one that the model does not know.
absl::Status check_prompt(std::string_view subject, std::span<const data::TokenId> ids,
                          const model::ModelConfig& model);

/// Whether host_memory_limit, where it is set, leaves room for answers to prompts that are computed `prompt_tokens` at
/// a time: for the weights, for what their files take while they are read, and for what the process holds beside them.
/// After the tokenizer is there and before the weights are. Errors: ResourceExhausted with the numbers.
absl::Status check_host_memory(const Config& config, const OpenModel& open, std::uint32_t prompt_tokens,
                               std::uint32_t capacity, Machine& machine);

SamplingOptions sampling_options(const Config& config, std::vector<std::int32_t> stop_ids);

/// Answers generation.prompt_ids and fills in the rest of `generation`; `on_text` (may be empty) receives the answer
/// piece by piece. finish_reason: stop, length, or interrupted by options.stop.
absl::Status give_answer(Generator& generator, const data::Tokenizer& tokenizer, const SamplingOptions& options,
                         const std::function<void(std::string_view)>& on_text, Generation& generation);

}  // namespace rondo::train
