// A conversation with a model: turns go in, answers come out, and what was computed for earlier turns is kept.
//
// With `compare` two sides answer every turn, the adapter's base and the adapter, each in a conversation of its own;
// they share the weights that they have in common. Called from one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/train/config.h"
#include "rondo/train/run.h"

namespace rondo::train {

/// What one side said.
struct ChatAnswer : Generation {         // finish_reason: stop, length or interrupted
  std::uint32_t reused_tokens = 0;       // of the prompt: computed in an earlier turn
  std::uint32_t forgotten_messages = 0;  // the oldest, left out for want of room from this turn on
};

class Chat {
 public:
  /// Opens the model, and the adapter where one is given. Errors: those of run_generation; InvalidArgument when the
  /// model has no chat template.
  static absl::StatusOr<std::unique_ptr<Chat>> open(const Config& config);
  ~Chat();

  /// "model" or "adapter"; with `compare` "base" and "adapter".
  const std::vector<std::string>& sides() const;

  /// Forgets the conversation, but for the system prompt.
  void reset();
  /// Begins a new conversation under this system prompt; empty: none.
  void set_system(const std::string& text);

  /// A user's turn, to be answered by every side.
  void say(const std::string& text);
  /// Side `side` answers the last turn; `on_text` (may be empty) receives the answer piece by piece. Set `stop` to end
  /// it early: what was said until then stays. Errors: InvalidArgument when the turn does not fit into context_len or
  /// the template refuses it.
  absl::StatusOr<ChatAnswer> answer(std::size_t side, const std::function<void(std::string_view)>& on_text,
                                    const std::atomic<bool>& stop);
  /// Takes the last turn back, on the sides that have not answered it.
  void take_back();

  /// [{"role", "content"}...] as a data set of conversations has them.
  nlohmann::ordered_json messages(std::size_t side) const;

 private:
  class Impl;
  explicit Chat(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::train
