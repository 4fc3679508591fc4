// libedit behind a table of functions, and plain lines for what is no terminal.
//
// Declarations are our own, as far as they are used: those of histedit.h, whose numbers are the library's interface.
#include "rondo/apps/line_editor.h"

#include <dlfcn.h>
#include <langinfo.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <string_view>

#include "rondo/apps/interrupts.h"

namespace rondo::apps {
namespace {

struct EditLine;
struct History;
struct HistoryEvent {
  int number;
  const char* text;
};
enum EditSetting : int { kSetPrompt = 0, kSetEditor = 2, kSetHistory = 10, kSetReader = 13 };
enum HistoryRequest : int { kSetSize = 1, kEnter = 10, kSetUnique = 20 };

struct EditFunctions {
  EditLine* (*init)(const char* program, std::FILE* in, std::FILE* out, std::FILE* err) = nullptr;
  void (*end)(EditLine*) = nullptr;
  int (*set)(EditLine*, int, ...) = nullptr;
  const char* (*gets)(EditLine*, int*) = nullptr;
  int (*source)(EditLine*, const char*) = nullptr;
  History* (*history_init)() = nullptr;
  void (*history_end)(History*) = nullptr;
  int (*history)(History*, HistoryEvent*, int, ...) = nullptr;
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

/// Null where the library is not installed. It stays open.
const EditFunctions* load_editor() {
  static const std::optional<EditFunctions> loaded = []() -> std::optional<EditFunctions> {
    void* library = ::dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return std::nullopt;
    EditFunctions f;
    const bool whole = find(library, "el_init", f.init) && find(library, "el_end", f.end) &&
                       find(library, "el_set", f.set) && find(library, "el_gets", f.gets) &&
                       find(library, "el_source", f.source) && find(library, "history_init", f.history_init) &&
                       find(library, "history_end", f.history_end) && find(library, "history", f.history);
    return whole ? std::optional(f) : std::nullopt;
  }();
  return loaded ? &*loaded : nullptr;
}

/// libedit counts characters by the locale; without one that knows UTF-8, by that of C.UTF-8.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(::nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

/// One byte of standard input: 1, 0 at its end, -1 when Ctrl-C came.
int read_byte(unsigned char& byte) {
  while (true) {
    if (Interrupts::wait_to_read(STDIN_FILENO) == Interrupts::Wait::kInterrupted) return -1;
    const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got >= 0) return static_cast<int>(got);
    if (errno != EINTR) return 0;
  }
}

/// libedit's reader: a character. Its own would go on waiting after the first Ctrl-C.
int read_character(EditLine* /*editor*/, wchar_t* character) {
  unsigned char byte = 0;
  int got = read_byte(byte);
  if (got <= 0) return got;
  const int more = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : byte >= 0xC0 ? 1 : 0;
  constexpr std::array<unsigned, 4> kBits = {0x7F, 0x1F, 0x0F, 0x07};
  std::uint32_t code = byte & kBits[static_cast<std::size_t>(more)];
  for (int i = 0; i < more; ++i) {
    got = read_byte(byte);
    if (got <= 0) return got;
    code = code << 6U | (byte & 0x3FU);
  }
  *character = static_cast<wchar_t>(code);
  return 1;
}

std::string current_prompt;  // one editor at a time: a prompt function is told nothing but the editor

char* give_prompt(EditLine* /*editor*/) { return current_prompt.data(); }

}  // namespace

class LineEditor::Edit {
 public:
  static std::unique_ptr<Edit> open(std::FILE* in, std::FILE* out) {
    const EditFunctions* functions = load_editor();
    if (functions == nullptr) return nullptr;
    use_utf8();
    EditLine* line = functions->init("rondo", in, out, stderr);
    if (line == nullptr) return nullptr;
    return std::unique_ptr<Edit>(new Edit(*functions, line));
  }
  ~Edit() {
    functions_.history_end(history_);
    functions_.end(line_);
  }
  Edit(const Edit&) = delete;
  Edit& operator=(const Edit&) = delete;

  Line read(const std::string& prompt) {
    current_prompt = prompt;
    int count = 0;
    const char* text = functions_.gets(line_, &count);
    if (text == nullptr || count <= 0) {
      const bool interrupted = Interrupts::flag().load(std::memory_order_relaxed);
      return {interrupted ? End::kInterrupted : End::kEndOfInput, {}};
    }
    std::string line(text);
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
    HistoryEvent event = {};
    if (!line.empty()) functions_.history(history_, &event, kEnter, line.c_str());
    return {End::kLine, std::move(line)};
  }

 private:
  Edit(const EditFunctions& functions, EditLine* line)
      : functions_(functions), line_(line), history_(functions.history_init()) {
    HistoryEvent event = {};
    functions_.history(history_, &event, kSetSize, 1000);
    functions_.history(history_, &event, kSetUnique, 1);
    functions_.set(line_, kSetEditor, "emacs");
    functions_.set(line_, kSetPrompt, &give_prompt);
    functions_.set(line_, kSetHistory, functions_.history, history_);
    functions_.set(line_, kSetReader, &read_character);
    functions_.source(line_, nullptr);  // the user's ~/.editrc
  }

  const EditFunctions& functions_;
  EditLine* const line_;
  History* const history_;
};

LineEditor::LineEditor(std::FILE* in, std::FILE* out) : in_(in), out_(out) {
  interactive_ = ::isatty(::fileno(in)) != 0 && ::isatty(::fileno(out)) != 0;
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::string_view(term) == "dumb";
  if (interactive_ && !dumb) editor_ = Edit::open(in, out);
}

LineEditor::~LineEditor() = default;

LineEditor::Line LineEditor::read(const std::string& prompt) {
  if (editor_ != nullptr) return editor_->read(prompt);
  if (interactive_) {
    std::fwrite(prompt.data(), 1, prompt.size(), out_);
    std::fflush(out_);
  }
  return read_plain();
}

/// By read() and not by stdio, which would go on after Ctrl-C.
LineEditor::Line LineEditor::read_plain() {
  std::array<char, 4096> buffer;
  while (true) {
    const std::size_t end = pending_.find('\n');
    if (end != std::string::npos || (ended_ && !pending_.empty())) {
      Line line = {End::kLine, pending_.substr(0, end)};
      pending_.erase(0, end == std::string::npos ? end : end + 1);
      if (!line.text.empty() && line.text.back() == '\r') line.text.pop_back();
      return line;
    }
    if (ended_) return {};
    if (Interrupts::wait_to_read(::fileno(in_)) == Interrupts::Wait::kInterrupted) {
      pending_.clear();
      return {End::kInterrupted, {}};
    }
    const ssize_t got = ::read(::fileno(in_), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      ended_ = true;
    } else {
      pending_.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }
}

}  // namespace rondo::apps
