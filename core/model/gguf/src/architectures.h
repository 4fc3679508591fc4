// What GGUF files call the architecture of a model, and which of these are read.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rondo/model/config.h"

namespace rondo::gguf {

/// llama (also for Mistral, Mixtral, InternLM 3, IQuest-Coder and Helium), arcee, chatglm (GLM-4 of 2024), mistral3,
/// qwen2, qwen3, qwen2vl, qwen3vl and qwen3vlmoe (the same with picture_turns), smollm3, granite, granitemoe, olmo2
/// (also for OLMo 3), gemma, gemma2, gemma3, gemma4, qwen2moe, qwen3moe, olmoe, gpt-oss, phi3, hunyuan-dense, exaone4,
/// seed_oss, ernie4_5, ernie4_5-moe, glm4, glm4moe, lfm2, lfm2moe, qwen35, qwen35moe, qwen3next, dots1, hunyuan-moe,
/// deepseek2 (also for GLM-4.7-Flash and Youtu), nemotron, granitehybrid (Granite 4 with state
/// spaces, Bamba), falcon-h1, nemotron_h, nemotron_h_moe; granite also for Granite 4 without experts and state spaces.
/// Empty for all others.
std::string architecture_name(const model::ModelConfig& config);

/// Family and parts of a model whose files are called so, as far as the name says them: what else a file says may make
/// it another that shares the name. Nothing for names that are not read.
std::optional<model::ModelConfig> config_of_architecture(std::string_view name);

/// The names that are read, for messages.
std::string architectures_read();

}  // namespace rondo::gguf
