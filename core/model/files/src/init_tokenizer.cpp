// A byte-level BPE model without merges. Its symbols are GPT-2's: bytes that print stand for themselves, the others,
// in order, for the characters from U+0100 on.
#include "init_tokenizer.h"

#include <array>

#include "json_reader.h"
#include "rondo/model/init.h"

namespace rondo::model {
namespace {

constexpr std::array<const char*, 4> kSpecialTokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"};
constexpr std::uint32_t kBytes = 256;
static_assert(kBytes + kSpecialTokens.size() == kInitTokenizerSize);

bool prints(std::uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/// All code points here lie below U+0800.
std::string utf8(std::uint32_t code_point) {
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xc0U | code_point >> 6U), static_cast<char>(0x80U | (code_point & 0x3fU))};
}

OrderedJson byte_level() {
  OrderedJson step;
  step["type"] = "ByteLevel";
  step["add_prefix_space"] = false;
  step["trim_offsets"] = true;
  step["use_regex"] = true;
  return step;
}

OrderedJson special_token(std::size_t index) {
  OrderedJson token;
  token["id"] = kBytes + index;
  token["content"] = kSpecialTokens[index];
  token["single_word"] = false;
  token["lstrip"] = false;
  token["rstrip"] = false;
  token["normalized"] = false;
  token["special"] = true;
  return token;
}

OrderedJson bpe_model() {
  OrderedJson model;
  model["type"] = "BPE";
  model["dropout"] = nullptr;
  model["unk_token"] = nullptr;
  model["continuing_subword_prefix"] = nullptr;
  model["end_of_word_suffix"] = nullptr;
  model["fuse_unk"] = false;
  model["byte_fallback"] = false;
  model["ignore_merges"] = false;
  OrderedJson vocabulary = OrderedJson::object();
  std::uint32_t next_stand_in = 0x100;
  for (std::uint32_t byte = 0; byte < kBytes; ++byte) {
    vocabulary[utf8(prints(byte) ? byte : next_stand_in++)] = byte;
  }
  for (std::size_t i = 0; i < kSpecialTokens.size(); ++i) vocabulary[kSpecialTokens[i]] = kBytes + i;
  model["vocab"] = std::move(vocabulary);
  model["merges"] = OrderedJson::array();
  return model;
}

}  // namespace

std::string init_tokenizer_json() {
  OrderedJson out;
  out["version"] = "1.0";
  out["truncation"] = nullptr;
  out["padding"] = nullptr;
  out["added_tokens"] = OrderedJson::array();
  for (std::size_t i = 0; i < kSpecialTokens.size(); ++i) out["added_tokens"].push_back(special_token(i));
  out["normalizer"] = nullptr;
  out["pre_tokenizer"] = byte_level();
  out["post_processor"] = nullptr;
  out["decoder"] = byte_level();
  out["model"] = bpe_model();
  return to_text(out);
}

std::string init_chat_template() {
  return "{%- for turn in messages -%}\n"
         "  {{- '<|im_start|>' + turn['role'] + '\\n' + turn['content'] + '<|im_end|>\\n' -}}\n"
         "{%- endfor -%}\n"
         "{%- if add_generation_prompt -%}\n"
         "  {{- '<|im_start|>assistant\\n' -}}\n"
         "{%- endif -%}\n";
}

std::string init_tokenizer_config_json(std::uint32_t max_positions) {
  OrderedJson out;
  out["tokenizer_class"] = "PreTrainedTokenizerFast";
  out["model_max_length"] = max_positions;
  out["added_tokens_decoder"] = OrderedJson::object();
  for (std::size_t i = 0; i < kSpecialTokens.size(); ++i) {
    OrderedJson token = special_token(i);
    token.erase("id");
    out["added_tokens_decoder"][std::to_string(kBytes + i)] = std::move(token);
  }
  out["bos_token"] = nullptr;
  out["eos_token"] = kSpecialTokens[kTurnEndId - kBytes];
  out["pad_token"] = kSpecialTokens[kPadId - kBytes];
  out["unk_token"] = nullptr;
  out["clean_up_tokenization_spaces"] = false;
  out["chat_template"] = init_chat_template();
  return to_text(out);
}

}  // namespace rondo::model
