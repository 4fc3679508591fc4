// A conversation is rendered whole by the chat template at every turn; the generator finds what of it is computed.
#include "rondo/train/chat.h"

#include <algorithm>
#include <optional>

#include "answer.h"
#include "rondo/base/status.h"
#include "rondo/train/generator.h"
#include "rondo/train/session.h"

namespace rondo::train {
namespace {

using Json = nlohmann::ordered_json;

/// Tokens of a prompt that are computed at once.
constexpr std::uint32_t kPiece = 256;
/// Of a conversation, where context_len is 0.
constexpr std::uint32_t kUsualContext = 4096;

struct Side {
  std::string name;
  std::unique_ptr<Generator> generator;
  Json messages = Json::array();
};

std::uint32_t capacity_of(const Config& config, const model::ModelConfig& model) {
  const std::uint32_t most = model.max_positions > 0 ? model.max_positions : kUsualContext;
  return config.context_len > 0 ? config.context_len : std::min(kUsualContext, most);
}

bool is_system(const Json& message) { return message["role"] == "system"; }

}  // namespace

class Chat::Impl {
 public:
  explicit Impl(const Config& config) : config_(config) {}

  absl::Status open() {
    RONDO_ASSIGN_OR_RETURN(machine_, open_machine(config_));
    if (machine_.phantom) return invalid_input("devices: {} does no arithmetic: it cannot answer", config_.devices);
    RONDO_ASSIGN_OR_RETURN(open_, open_model(config_, Purpose::kEvaluate, true));
    RONDO_ASSIGN_OR_RETURN(text_, open_text(open_.documents));
    if (!text_->chat_template) {
      return invalid_input("model_name_or_path: {} has no chat template; `rondo generate --raw` continues plain text",
                           config_.model_name_or_path);
    }
    const model::ModelConfig& model = open_.architecture->config();
    RONDO_ASSIGN_OR_RETURN(stop_ids_, stop_ids_of(open_, *text_));
    capacity_ = capacity_of(config_, model);
    const std::uint32_t piece = std::min(kPiece, capacity_);
    RONDO_RETURN_IF_ERROR(check_host_memory(config_, open_, piece, capacity_, machine_));
    RONDO_ASSIGN_OR_RETURN(store_, open_store(config_, open_, machine_));
    devices::Device& device = *machine_.pool.front().device;
    Side own{config_.adapter_name_or_path.empty() ? "model" : "adapter", nullptr};
    RONDO_ASSIGN_OR_RETURN(own.generator, Generator::make(*open_.architecture, *store_, device, piece, capacity_));
    if (config_.compare) {
      model::MethodSpec method = open_.architecture->method();
      method.lora.reset();
      RONDO_ASSIGN_OR_RETURN(base_, model::Architecture::make(model, method));
      Side base{"base", nullptr};
      RONDO_ASSIGN_OR_RETURN(base.generator,
                             Generator::make(*base_, *store_, device, piece, capacity_, own.generator.get()));
      sides_.push_back(std::move(base));
    }
    sides_.push_back(std::move(own));
    for (const Side& side : sides_) names_.push_back(side.name);
    return absl::OkStatus();
  }

  absl::StatusOr<ChatAnswer> answer(Side& side, const std::function<void(std::string_view)>& on_text,
                                    const std::atomic<bool>& stop) {
    ChatAnswer answer;
    Json messages = side.messages;
    RONDO_ASSIGN_OR_RETURN(answer.prompt_ids, prompt_ids(messages));
    while (answer.prompt_ids.size() + config_.max_new_tokens > capacity_ && forget_oldest(messages)) {
      answer.forgotten_messages += 2;
      RONDO_ASSIGN_OR_RETURN(answer.prompt_ids, prompt_ids(messages));
    }
    if (answer.prompt_ids.size() >= capacity_) {
      return invalid_input("the turn: {} tokens do not fit into a context of {}; shorten it or raise context_len",
                           answer.prompt_ids.size(), capacity_);
    }
    RONDO_RETURN_IF_ERROR(generate(side, on_text, stop, answer));
    messages.push_back({{"role", "assistant"}, {"content", answer.text}});
    side.messages = std::move(messages);
    return answer;
  }

  std::vector<Side>& sides() { return sides_; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  absl::StatusOr<std::vector<data::TokenId>> prompt_ids(const Json& messages) const {
    RONDO_ASSIGN_OR_RETURN(std::vector<data::TokenId> ids, conversation_ids(*text_, messages));
    RONDO_RETURN_IF_ERROR(check_prompt("the turn", ids, open_.architecture->config()));
    return ids;
  }

  /// Drops the first user's turn and its answer; false when there is but the last turn.
  static bool forget_oldest(Json& messages) {
    const std::size_t first = !messages.empty() && is_system(messages.front()) ? 1 : 0;
    if (messages.size() < first + 3) return false;
    const auto at = messages.begin() + static_cast<std::ptrdiff_t>(first);
    messages.erase(at, at + 2);
    return true;
  }

  absl::Status generate(Side& side, const std::function<void(std::string_view)>& on_text, const std::atomic<bool>& stop,
                        ChatAnswer& answer) {
    SamplingOptions options = sampling_options(config_, stop_ids_);
    const auto prompt_tokens = static_cast<std::uint32_t>(answer.prompt_ids.size());
    options.max_new_tokens = std::min(config_.max_new_tokens, capacity_ - prompt_tokens);
    options.stop = &stop;
    RONDO_RETURN_IF_ERROR(give_answer(*side.generator, text_->tokenizer, options, on_text, answer));
    answer.reused_tokens = side.generator->reused_tokens();
    return absl::OkStatus();
  }

  const Config config_;
  Machine machine_;
  OpenModel open_;
  std::optional<model::Architecture> base_;
  std::optional<TextParts> text_;
  std::optional<offload::ParameterStore> store_;
  std::vector<std::int32_t> stop_ids_;
  std::uint32_t capacity_ = 0;
  std::vector<Side> sides_;
  std::vector<std::string> names_;
};

Chat::Chat(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Chat::~Chat() = default;

absl::StatusOr<std::unique_ptr<Chat>> Chat::open(const Config& config) {
  auto impl = std::make_unique<Impl>(config);
  RONDO_RETURN_IF_ERROR(impl->open());
  return std::unique_ptr<Chat>(new Chat(std::move(impl)));
}

const std::vector<std::string>& Chat::sides() const { return impl_->names(); }

void Chat::reset() {
  for (Side& side : impl_->sides()) {
    const bool keeps = !side.messages.empty() && is_system(side.messages.front());
    side.messages = keeps ? Json::array({side.messages.front()}) : Json::array();
  }
}

void Chat::set_system(const std::string& text) {
  for (Side& side : impl_->sides()) {
    side.messages = Json::array();
    if (!text.empty()) side.messages.push_back({{"role", "system"}, {"content", text}});
  }
}

void Chat::say(const std::string& text) {
  for (Side& side : impl_->sides()) side.messages.push_back({{"role", "user"}, {"content", text}});
}

absl::StatusOr<ChatAnswer> Chat::answer(std::size_t side, const std::function<void(std::string_view)>& on_text,
                                        const std::atomic<bool>& stop) {
  return impl_->answer(impl_->sides()[side], on_text, stop);
}

void Chat::take_back() {
  for (Side& side : impl_->sides()) {
    if (!side.messages.empty() && side.messages.back()["role"] == "user") {
      side.messages.erase(side.messages.size() - 1);
    }
  }
}

Json Chat::messages(std::size_t side) const { return impl_->sides()[side].messages; }

}  // namespace rondo::train
