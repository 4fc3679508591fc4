// Lines of input: edited with a history at a terminal, plain from a pipe.
//
// The editor is Debian's libedit, looked for at run time: without it a terminal's own editing serves (backspace and no
// history). Thread rule: one caller.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

namespace rondo::apps {

class LineEditor {
 public:
  /// Reads from `in`; prompts go to `out`. Neither is owned.
  LineEditor(std::FILE* in, std::FILE* out);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class End { kLine, kEndOfInput, kInterrupted };
  struct Line {
    End end = End::kEndOfInput;
    std::string text;  // without the line break
  };
  /// `prompt` is shown at a terminal alone. Ctrl-C (Interrupts) gives up the line.
  Line read(const std::string& prompt);

  /// Whether a person types.
  bool interactive() const { return interactive_; }
  /// Whether libedit was found; false through a pipe.
  bool edits() const { return editor_ != nullptr; }

 private:
  class Edit;
  Line read_plain();

  std::FILE* const in_;
  std::FILE* const out_;
  bool interactive_ = false;
  std::string pending_;  // read from a pipe and not yet handed out
  bool ended_ = false;
  std::unique_ptr<Edit> editor_;
};

}  // namespace rondo::apps
