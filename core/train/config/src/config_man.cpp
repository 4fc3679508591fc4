// The manual page. In roff a backslash begins an escape and a line that begins with a point or an apostrophe a request:
// both are written so that they stand for themselves.
#include <fmt/format.h>

#include "config_keys.h"
#include "rondo/train/manual.h"

namespace rondo::train {
namespace {

using config::Key;
using config::VerbHelp;

std::string roff(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '\\':
        result += "\\e";
        break;
      case '-':
        result += "\\-";
        break;
      case '`':
        result += "\\(ga";
        break;
      case '\'':
        result += "\\(aq";
        break;
      default:
        result += c;
    }
  }
  return result.starts_with('.') ? "\\&" + result : result;
}

std::string key_entry(const Key& key) {
  std::string text = ".TP\n";
  text += fmt::format("\\fB\\-\\-{}\\fR", roff(key.name));
  for (const std::string& alias : key.aliases) text += fmt::format(", \\fB\\-\\-{}\\fR", roff(alias));
  text += "\n" + roff(key.help);
  const bool limits = !key.choices.empty() || !key.unavailable.empty();
  if (limits) text += roff(fmt::format(": {}", config::expectation(key)));
  const std::string fallback = config::value_text(Config{}, key);
  if (!fallback.empty()) text += roff(fmt::format(" [{}]", fallback));
  return text + "\n";
}

std::string verb_section(const VerbHelp& help) {
  std::string text = fmt::format(".SS \"rondo {}\"\n{}.\n.PP\n.nf\nrondo {} {}\n.fi\n", help.name, roff(help.summary),
                                 help.name, roff(help.arguments));
  // Keys of training are told once, with the verb train.
  const config::Verbs bit = config::verb_bit(help.name);
  std::string shared;
  for (const Key& key : config::keys()) {
    if ((key.verbs & bit) == 0 || key.verbs == config::kEvery) continue;
    if (bit != config::kTrain && (key.verbs & config::kTrain) != 0) {
      shared += (shared.empty() ? "" : ", ") + std::string("\\fB\\-\\-") + roff(key.name) + "\\fR";
    } else {
      text += key_entry(key);
    }
  }
  if (!shared.empty()) text += fmt::format(".PP\nAs with \\fBrondo train\\fR: {}.\n", shared);
  return text + fmt::format(".PP\nExample:\n.PP\n.nf\n.RS\n{}\n.RE\n.fi\n", roff(help.example));
}

constexpr const char* kDescription =
    ".SH DESCRIPTION\n"
    "Rondo fine\\-tunes language models on the devices of one machine: an adapter or every weight, on the CPU and on\n"
    "graphics cards, which may differ from each other.\n"
    "Settings come from a YAML file of lines \\fIkey: value\\fR and from flags; flags win.\n"
    "In keys \\- and _ are equal, \\fB\\-\\-key=value\\fR works too, and a flag without a value is \\fItrue\\fR.\n"
    "An unknown key is an error that names the nearest known one.\n"
    "Every verb takes \\fB\\-\\-json\\fR: one JSON document on standard output and nothing else.\n";

constexpr const char* kEnd =
    ".SH FILES\n"
    ".TP\n\\fIoutput_dir\\fR\nof a run: the adapter or the model, checkpoints, \\fImetrics.jsonl\\fR,\n"
    "\\fIconfig.resolved.yaml\\fR with every key, which repeats the run, and \\fItrain.log\\fR.\n"
    ".TP\n\\fI~/.cache/rondo\\fR\nmeasured speeds of this machine\\(aqs devices; below $XDG_CACHE_HOME where that is "
    "set.\n"
    ".SH ENVIRONMENT\n"
    ".TP\n\\fBHF_HUB_CACHE\\fR, \\fBHF_HOME\\fR\nwhere models that are named by their Hub id lie.\n"
    ".TP\n\\fBNO_COLOR\\fR\nno colours at a terminal.\n"
    ".SH EXIT STATUS\n"
    "0 done; 1 the work failed; 2 the command line, the configuration or an input file is wrong; 130 interrupted "
    "after\n"
    "saving.\n";

}  // namespace

std::string manual_page(const std::string& version) {
  std::string text = fmt::format(".TH RONDO 1 \"\" \"rondo {}\" \"User Commands\"\n", roff(version));
  text += ".SH NAME\nrondo \\- fine\\-tune language models on the devices of one machine\n.SH SYNOPSIS\n";
  text += ".B rondo\n\\fIverb\\fR [\\fIconfig.yaml\\fR] [\\fB\\-\\-key\\fR \\fIvalue\\fR]...\n.br\n";
  text += ".B rondo\n\\fBhelp\\fR [\\fIverb\\fR]\n.br\n.B rondo\n\\fB\\-\\-version\\fR\n";
  text += kDescription;
  text += ".SH VERBS\n";
  for (const VerbHelp& help : config::verb_helps()) text += verb_section(help);
  return text + kEnd;
}

}  // namespace rondo::train
