// The names that chat templates find, whoever renders them: the data set's conversations or a prompt.
#include "rondo/data/samples.h"

namespace rondo::data {

nlohmann::ordered_json template_context(const Tokenizer& tokenizer) {
  nlohmann::ordered_json context = {{"messages", nullptr}, {"tools", nullptr}, {"documents", nullptr}};
  const auto name = [&](const char* key, const std::optional<std::string>& token) {
    if (token) context[key] = *token;
  };
  name("bos_token", tokenizer.bos_token());
  name("eos_token", tokenizer.eos_token());
  name("pad_token", tokenizer.pad_token());
  name("unk_token", tokenizer.unk_token());
  return context;
}

}  // namespace rondo::data
