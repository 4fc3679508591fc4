// The tokenizer files of a model made by init_model.
#pragma once

#include <cstdint>
#include <string>

namespace rondo::model {

constexpr std::int32_t kEndOfTextId = 256;
constexpr std::int32_t kTurnEndId = 258;
constexpr std::int32_t kPadId = 259;

std::string init_tokenizer_json();
std::string init_tokenizer_config_json(std::uint32_t max_positions);
std::string init_chat_template();

}  // namespace rondo::model
