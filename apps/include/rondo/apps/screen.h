// The screen of a run: text before it, one updating line on a terminal or plain lines elsewhere, notes in between. The
// same text goes to a log file, without escape sequences.
//
// Called from one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "rondo/train/run.h"

namespace rondo::apps {

/// How a stream is to be written to.
struct TerminalKind {
  bool updates = false;  // a terminal on which a line can be overwritten
  bool colour = false;
};
/// Of a stream's file descriptor; the variables NO_COLOR and TERM are heeded.
TerminalKind terminal_kind(std::FILE* stream);

/// Columns of the terminal behind `stream`, 80 when it does not say.
std::size_t terminal_width(std::FILE* stream);

class Reminder;

class Screen : public train::RunObserver {
 public:
  static constexpr std::chrono::milliseconds kHalfMinute{30000};

  /// `log`: opened when the run starts, for appending when it is resumed; empty: none. `stream` is not owned.
  /// `between`: lines that say what is under way, where it is no terminal.
  Screen(std::FILE* stream, TerminalKind kind, std::filesystem::path log,
         std::chrono::milliseconds between = kHalfMinute);
  ~Screen() override;
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void on_start(const train::RunSummary& summary) override;
  void on_step(const train::StepReport& report) override;
  void on_evaluation(const train::EvalReport& report) override;
  void on_checkpoint(const std::string& path) override;
  void on_note(const std::string& text) override;
  /// On a terminal the updating line; elsewhere a line every half minute until something else is said.
  void on_progress(std::string_view what, std::uint64_t done, std::uint64_t of) override;

  /// Ends the updating line, if there is one, and writes `text` as lines of its own.
  void write(const std::string& text);
  /// The same for the log alone: what was told on the stream by other means.
  void log(const std::string& text);

 private:
  void clear_line();
  /// `stays`: when something else is said.
  void update_line(const std::string& text, bool stays);
  /// Something else is said.
  void end_progress();
  /// Leaves the last state of a run's updating line on the screen, and of progress nothing.
  void end_line();

  std::FILE* const stream_;
  const TerminalKind kind_;
  const std::filesystem::path log_path_;
  std::FILE* log_ = nullptr;  // owned
  std::string before_log_;    // what was said before the run began and its log was made
  bool started_ = false;
  bool line_is_open_ = false;  // the cursor stands on the updating line
  bool line_stays_ = false;    // when something else is said
  const std::chrono::milliseconds between_;
  std::unique_ptr<Reminder> reminder_;  // where it is no terminal, once something is under way
};

}  // namespace rondo::apps
