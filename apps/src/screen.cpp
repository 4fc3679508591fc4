// The screen of a run.
#include "rondo/apps/screen.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "reminder.h"
#include "rondo/apps/describe.h"
#include "rondo/apps/text.h"

namespace rondo::apps {
namespace {

void write_out(std::FILE* stream, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

TerminalKind terminal_kind(std::FILE* stream) {
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  const bool terminal = ::isatty(::fileno(stream)) != 0 && !dumb;
  return {terminal, terminal && !is_set("NO_COLOR")};
}

std::size_t terminal_width(std::FILE* stream) {
  winsize size{};
  if (::ioctl(::fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col < 10) return 80;
  return size.ws_col;
}

Screen::Screen(std::FILE* stream, TerminalKind kind, std::filesystem::path log, std::chrono::milliseconds between)
    : stream_(stream), kind_(kind), log_path_(std::move(log)), between_(between) {}

Screen::~Screen() {
  reminder_.reset();
  end_line();
  if (log_ != nullptr) std::fclose(log_);
}

void Screen::clear_line() {
  if (line_is_open_) write_out(stream_, "\r\x1b[K");
  line_is_open_ = false;
}

void Screen::update_line(const std::string& text, bool stays) {
  clear_line();
  write_out(stream_, text);
  line_is_open_ = true;
  line_stays_ = stays;
}

void Screen::end_progress() {
  if (reminder_ != nullptr) reminder_->set("");
}

void Screen::end_line() {
  if (!line_stays_) return clear_line();
  if (line_is_open_) write_out(stream_, "\n");
  line_is_open_ = false;
}

void Screen::log(const std::string& text) {
  if (log_ != nullptr) {
    write_out(log_, strip_escapes(text));
  } else if (!log_path_.empty() && !started_) {
    before_log_ += strip_escapes(text);
  }
}

void Screen::write(const std::string& text) {
  end_progress();
  end_line();
  write_out(stream_, text);
  log(text);
}

void Screen::on_start(const train::RunSummary& summary) {
  started_ = true;
  if (!log_path_.empty() && log_ == nullptr) {
    log_ = std::fopen(log_path_.c_str(), summary.first_step > 0 ? "ae" : "we");
    if (log_ == nullptr) write(fmt::format("note       {} cannot be written\n", log_path_.string()));
    log(std::exchange(before_log_, {}));
  }
  write(describe_summary(summary, kind_.colour));
}

void Screen::on_step(const train::StepReport& report) {
  const std::string line = progress_line(report, 0) + "\n";
  if (kind_.updates) {
    // The last column stays free: a terminal that wraps there would begin a line of its own.
    update_line(progress_line(report, terminal_width(stream_) - 1), true);
  } else {
    end_progress();
    write_out(stream_, line);
  }
  log(line);
}

void Screen::on_evaluation(const train::EvalReport& report) {
  write(fmt::format("evaluation at step {}: loss {:.4f} over {} target tokens\n", report.step, report.eval_loss,
                    report.eval_target_tokens));
}

void Screen::on_checkpoint(const std::string& path) { write(fmt::format("checkpoint {}\n", path)); }

void Screen::on_note(const std::string& text) { write(labelled("note", text)); }

void Screen::on_progress(std::string_view what, std::uint64_t done, std::uint64_t of) {
  const std::string line = of == 0 ? std::string(what) : fmt::format("{} {} of {}", what, done, of);
  if (kind_.updates) {
    update_line(line.substr(0, terminal_width(stream_) - 1), false);  // in ASCII; one that wraps is not cleared
    return;
  }
  if (reminder_ == nullptr) reminder_ = std::make_unique<Reminder>(stream_, between_);
  reminder_->set(line);
}

}  // namespace rondo::apps
