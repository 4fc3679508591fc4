// The loop of a conversation: lines in, commands and answers out.
#include "rondo/apps/chat.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "rondo/apps/columns.h"
#include "rondo/apps/interrupts.h"
#include "rondo/apps/line_editor.h"
#include "rondo/apps/output.h"
#include "rondo/apps/screen.h"
#include "rondo/apps/text.h"
#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/train/chat.h"

namespace rondo::apps {
namespace {

using Json = nlohmann::ordered_json;
using train::Chat;
using train::ChatAnswer;

/// Narrower terminals show two answers below each other.
constexpr std::size_t kWide = 100;

constexpr const char* kHelp =
    "/reset         forget the conversation, keep the system prompt\n"
    "/system TEXT   begin anew under this system prompt; without a text under none\n"
    "/save FILE     write the conversation as a record of messages, as a data set has them\n"
    "/help          this list\n"
    "/exit          end; so does Ctrl-D\n"
    "Ctrl-C stops an answer. A line that ends in \\ goes on in the next; one that begins with // begins with a "
    "slash.\n";

class Talk {
 public:
  Talk(const train::Config& config, const Streams& streams, Chat& chat)
      : config_(config),
        streams_(streams),
        chat_(chat),
        lines_(stdin, streams.out),
        answers_(chat.sides().size(), Json::array()) {}

  absl::Status run() {
    if (lines_.interactive()) greet();
    while (!done_) {
      const LineEditor::Line line = read_turn();
      if (line.end == LineEditor::End::kEndOfInput) break;
      if (line.end == LineEditor::End::kInterrupted) {
        if (!lines_.interactive()) return absl::CancelledError("interrupted");
        Interrupts::clear();
        tell("\n(/exit or Ctrl-D ends)\n");
        continue;
      }
      const absl::Status status = take(line.text);
      if (status.ok()) continue;
      if (!lines_.interactive() || !output_.ok()) return output_.ok() ? status : output_;
      print_error(streams_.err, message_of(status));
    }
    if (lines_.interactive()) show("\n");
    return config_.json ? put_documents() : output_;
  }

 private:
  void greet() const {
    tell(fmt::format("{}; /help lists the commands\n", chat_.sides().size() > 1
                                                           ? "base and adapter answer every turn"
                                                           : "the " + chat_.sides().front() + " is ready"));
    if (!lines_.edits()) tell("note: lines are edited with a history where libedit is (Debian's package libedit2)\n");
  }

  void tell(const std::string& text) const {
    std::fwrite(text.data(), 1, text.size(), streams_.err);
    std::fflush(streams_.err);
  }

  /// On standard output; the first failure stays in output_.
  void show(std::string_view text) {
    if (!output_.ok()) return;
    output_ = put(streams_.out, text);
  }

  LineEditor::Line read_turn() {
    LineEditor::Line whole = lines_.read("> ");
    ++line_;
    while (whole.end == LineEditor::End::kLine && whole.text.ends_with('\\')) {
      whole.text.back() = '\n';
      LineEditor::Line next = lines_.read(". ");
      ++line_;
      if (next.end == LineEditor::End::kInterrupted) return next;
      if (next.end == LineEditor::End::kEndOfInput) break;
      whole.text += next.text;
    }
    return whole;
  }

  absl::Status take(const std::string& text) {
    if (text.find_first_not_of(" \t\n") == std::string::npos) return absl::OkStatus();
    if (text.starts_with("//")) return converse(text.substr(1));
    if (text.starts_with('/')) return command(text);
    return converse(text);
  }

  absl::Status command(const std::string& text) {
    const std::size_t blank = std::min(text.find(' '), text.size());
    const std::string name = text.substr(0, blank);
    const std::size_t begin = std::min(text.find_first_not_of(' ', blank), text.size());
    const std::string rest = text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
    const bool takes_text = name == "/system" || name == "/save";
    const bool known = takes_text || name == "/reset" || name == "/help" || name == "/exit" || name == "/quit";
    if (!known) {
      return invalid_input("{}{}: unknown command; there are /reset, /system, /save, /help and /exit", place(), name);
    }
    if (!takes_text && !rest.empty())
      return invalid_input("{}{}: expected nothing after it, found {}", place(), name, rest);
    if (name == "/exit" || name == "/quit") done_ = true;
    if (name == "/help") tell(kHelp);
    if (name == "/reset") chat_.reset();
    if (name == "/system") chat_.set_system(rest);
    if (name == "/save") return save(rest);
    return absl::OkStatus();
  }

  /// Only a file of this conversation is written over: a slip may not cost a data set.
  absl::Status save(const std::string& file) {
    if (file.empty()) return invalid_input("{}/save: expected a file to write, found none", place());
    std::error_code ignored;
    if (file != saved_ && std::filesystem::exists(file, ignored)) {
      return invalid_input("{}/save: {} exists already; name another file", place(), file);
    }
    const Json record = Json::object({{"messages", chat_.messages(answers_.size() - 1)}});
    const absl::Status written =
        write_file_atomically(file, record.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    if (!written.ok()) return written;
    saved_ = file;
    tell(fmt::format("saved in {}\n", file));
    return absl::OkStatus();
  }

  absl::Status converse(const std::string& text) {
    chat_.say(text);
    const bool columns = answers_.size() > 1 && lines_.interactive() && terminal_width(streams_.out) >= kWide;
    std::vector<std::string> texts;
    for (std::size_t side = 0; side < answers_.size(); ++side) {
      const absl::StatusOr<ChatAnswer> answer = speak(side, columns || config_.json);
      if (!answer.ok()) {
        chat_.take_back();
        return with_context(answer.status(), lines_.interactive() ? "this turn" : fmt::format("line {}", line_));
      }
      texts.push_back(answer->text);
      answers_[side].push_back(document(*answer));
      if (!columns && !config_.json) show("\n");
      remark(*answer);
      if (output_.ok()) continue;
      return output_;
    }
    if (columns) {
      show(side_by_side(chat_.sides()[0], harmless(texts[0]), chat_.sides()[1], harmless(texts[1]),
                        terminal_width(streams_.out) - 1));
    }
    return output_;
  }

  absl::StatusOr<ChatAnswer> speak(std::size_t side, bool silent) {
    const bool terminal = lines_.interactive();
    if (!silent && answers_.size() > 1) show(chat_.sides()[side] + ": ");
    const auto on_text = [&](std::string_view piece) { show(terminal ? harmless(piece) : std::string(piece)); };
    absl::StatusOr<ChatAnswer> answer =
        silent ? chat_.answer(side, {}, Interrupts::flag()) : chat_.answer(side, on_text, Interrupts::flag());
    Interrupts::clear();
    return answer;
  }

  void remark(const ChatAnswer& answer) const {
    if (answer.forgotten_messages > 0) {
      tell(
          fmt::format("note: the {} oldest messages no longer fit and are forgotten; context_len gives room for more\n",
                      answer.forgotten_messages));
    }
    if (!lines_.interactive()) return;
    if (answer.finish_reason == "length") tell("note: cut off; max_new_tokens allows for more\n");
    if (answer.finish_reason == "interrupted") tell("note: stopped\n");
  }

  static Json document(const ChatAnswer& answer) {
    return Json::object({{"text", answer.text},
                         {"prompt_ids", answer.prompt_ids},
                         {"token_ids", answer.token_ids},
                         {"finish_reason", answer.finish_reason},
                         {"reused_tokens", answer.reused_tokens}});
  }

  absl::Status put_documents() {
    Json all = Json::object();
    for (std::size_t side = 0; side < answers_.size(); ++side) {
      const std::string prefix = answers_.size() > 1 && side == 0 ? "base_" : "";
      all[prefix + "messages"] = chat_.messages(side);
      all[prefix + "answers"] = answers_[side];
    }
    return output_.ok() ? put_json(streams_.out, all) : output_;
  }

  /// "line 3: " where a script wants to know it.
  std::string place() const { return lines_.interactive() ? std::string() : fmt::format("line {}: ", line_); }

  const train::Config& config_;
  const Streams& streams_;
  Chat& chat_;
  LineEditor lines_;
  std::vector<Json> answers_;  // by side; arrays
  absl::Status output_;
  std::string saved_;
  std::size_t line_ = 0;
  bool done_ = false;
};

}  // namespace

absl::Status run_chat(const train::Config& config, const Streams& streams) {
  RONDO_ASSIGN_OR_RETURN(const std::unique_ptr<Chat> chat, Chat::open(config));
  const Interrupts interrupts;
  return Talk(config, streams, *chat).run();
}

}  // namespace rondo::apps
