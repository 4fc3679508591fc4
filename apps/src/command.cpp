// From the command line to a verb, from its status to the exit status.
#include "rondo/apps/command.h"

#include <fmt/format.h>

#include <algorithm>

#include "rondo/apps/output.h"
#include "rondo/apps/text.h"
#include "rondo/apps/verbs.h"
#include "rondo/base/status.h"
#include "rondo/train/config.h"

namespace rondo::apps {
namespace {

bool contains(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

absl::Status unknown_verb(const std::string& verb) {
  return invalid_input("'{}': unknown verb; expected one of {}", verb, joined(train::verbs()));
}

absl::Status print_help(const std::vector<std::string>& verbs, std::FILE* out) {
  if (verbs.size() > 1) return invalid_input("help: expected one verb, found {}", verbs.size());
  if (verbs.empty()) return put(out, train::help_text(""));
  if (!contains(train::verbs(), verbs[0])) return unknown_verb(verbs[0]);
  return put(out, train::help_text(verbs[0]));
}

absl::Status dispatch(const std::vector<std::string>& arguments, const Streams& streams, train::StopRequest& stop) {
  if (arguments.empty()) {
    return invalid_input("expected a verb, found none; there are {}, and `rondo help` explains them",
                         joined(train::verbs()));
  }
  const std::string& verb = arguments[0];
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (verb == "--version") return put(streams.out, fmt::format("rondo {}\n", RONDO_VERSION));
  if (verb == "--help" || verb == "-h" || verb == "help") return print_help(rest, streams.out);
  if (!contains(train::verbs(), verb)) return unknown_verb(verb);
  if (contains(rest, "--help") || contains(rest, "-h")) return print_help({verb}, streams.out);
  RONDO_ASSIGN_OR_RETURN(const train::Config config, train::parse_arguments(verb, rest));
  return run_verb(verb, config, streams, stop);
}

}  // namespace

int exit_status(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kDone;
    case absl::StatusCode::kInvalidArgument:
      return kBadInput;
    case absl::StatusCode::kCancelled:
      return kInterrupted;
    default:
      return kWorkFailed;
  }
}

void print_error(std::FILE* err, std::string_view message) {
  const std::string line = "error: " + one_line(message) + "\n";
  std::fwrite(line.data(), 1, line.size(), err);
  std::fflush(err);
}

int run_command(const std::vector<std::string>& arguments, const Streams& streams, train::StopRequest& stop) {
  const absl::Status status = dispatch(arguments, streams, stop);
  // An interrupted run has said so on the screen: it is no error.
  if (!status.ok() && status.code() != absl::StatusCode::kCancelled) {
    print_error(streams.err, message_of(status));
  }
  return exit_status(status);
}

}  // namespace rondo::apps
