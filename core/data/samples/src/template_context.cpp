// The names that chat templates find, whoever renders them: the data set's conversations or a prompt.
#include "rondo/data/samples.h"

namespace rondo::data {

nlohmann::ordered_json template_context(const Tokenizer& tokenizer) {
  nlohmann::ordered_json context = {{"messages", nullptr}, {"tools", nullptr}, {"documents", nullptr}};
  for (const auto& [name, token] : tokenizer.named_tokens()) context[name] = token;
  return context;
}

}  // namespace rondo::data
