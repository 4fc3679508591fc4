// Completions: each shell's script holds the verbs, the keys of each verb and the values of those keys that have a
// list. Other values complete as files.
//
// Names of keys and values are words of letters, digits and signs without a meaning in shells; only help texts are
// quoted.
#include <fmt/format.h>

#include "config_keys.h"
#include "rondo/train/config_text.h"
#include "rondo/train/manual.h"

namespace rondo::train {
namespace {

using config::Key;
using config::VerbHelp;

std::string verb_words() {
  std::string words;
  for (const VerbHelp& help : config::verb_helps()) words += (words.empty() ? "" : " ") + std::string(help.name);
  return words;
}

/// What a key can be set to, where that is a list: "bf16 fp16 fp32", "true false".
std::string value_words(const Key& key) {
  if (std::holds_alternative<bool Config::*>(key.member)) return key.unavailable.empty() ? "true false" : "false";
  std::string words;
  for (const std::string& choice : key.choices) {
    if (!choice.empty()) words += (words.empty() ? "" : " ") + choice;
  }
  return words;
}

/// Words that a verb takes without a flag.
std::string bare_words(const VerbHelp& help) {
  return help.name == std::string("completion") ? "bash zsh fish" : std::string();
}

/// The keys that a verb's page shows, in words.
template <typename Function>
void for_keys(const VerbHelp& help, Function&& take) {
  for (const Key& key : config::keys()) {
    if ((key.verbs & config::verb_bit(help.name)) != 0) take(key);
  }
}

std::string bash_script() {
  std::string text =
      "# Completion of rondo for bash; written by `rondo completion bash`.\n"
      "_rondo() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} keys= values= "
      "words=\n"
      "  COMPREPLY=()\n"
      "  if [ \"$cur\" = = ]; then cur=; elif [ \"$prev\" = = ]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n";
  text += fmt::format("    COMPREPLY=($(compgen -W \"{} help --help --version\" -- \"$cur\"))\n    return\n  fi\n",
                      verb_words());
  text += "  case $verb in\n";
  text += fmt::format("    help) words=\"{}\" ;;\n", verb_words());
  for (const VerbHelp& help : config::verb_helps()) {
    text += fmt::format("    {})\n      words=\"{}\"\n      keys=\"", help.name, bare_words(help));
    for_keys(help, [&](const Key& key) { text += fmt::format("--{} ", key.name); });
    text += "--help\"\n      case ${prev//-/_} in\n";
    for_keys(help, [&](const Key& key) {
      const std::string values = value_words(key);
      if (values.empty()) return;
      std::string patterns = "__" + key.name;
      for (const std::string& alias : key.aliases) patterns += "|__" + alias;
      text += fmt::format("        {}) values=\"{}\" ;;\n", patterns, values);
    });
    text += "      esac ;;\n";
  }
  return text +
         "  esac\n"
         "  if [ -n \"$values\" ]; then\n"
         "    COMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n"
         "  elif [[ $cur == -* ]]; then\n"
         "    cur=${cur#-} cur=${cur#-}\n"
         "    COMPREPLY=($(compgen -W \"$keys\" -- \"--${cur//-/_}\"))\n"
         "  elif [ -n \"$words\" ]; then\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
         "  else\n"
         "    compopt -o filenames 2>/dev/null\n"
         "    COMPREPLY=($(compgen -f -- \"$cur\"))\n"
         "  fi\n"
         "}\n"
         "complete -F _rondo rondo\n";
}

/// In a specification of _arguments brackets and colons have a meaning.
std::string zsh_text(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_script() {
  std::string text =
      "#compdef rondo\n"
      "# Completion of rondo for zsh; written by `rondo completion zsh`.\n"
      "_rondo() {\n"
      "  local -a verbs\n"
      "  verbs=(\n";
  for (const VerbHelp& help : config::verb_helps()) {
    text += fmt::format("    {}\n", config::shell_quoted(fmt::format("{}:{}", help.name, zsh_text(help.summary))));
  }
  text +=
      "    'help:the keys of a verb'\n"
      "  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe verb verbs\n"
      "    return\n"
      "  fi\n"
      "  local verb=$words[2]\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $verb in\n"
      "    help) _describe verb verbs ;;\n";
  for (const VerbHelp& help : config::verb_helps()) {
    text += fmt::format("    {})\n      _arguments \\\n", help.name);
    for_keys(help, [&](const Key& key) {
      const std::string values = value_words(key);
      const std::string action = values.empty() ? "_files" : "(" + values + ")";
      text += fmt::format("        {} \\\n", config::shell_quoted(fmt::format("*--{}[{}]:{}:{}", key.name,
                                                                              zsh_text(key.help), key.name, action)));
    });
    const std::string bare = bare_words(help);
    text +=
        fmt::format("        {} ;;\n", config::shell_quoted(bare.empty() ? "*:file:_files" : "1:word:(" + bare + ")"));
  }
  return text +
         "  esac\n"
         "}\n"
         "if [ \"$funcstack[1]\" = _rondo ]; then _rondo \"$@\"; else compdef _rondo rondo; fi\n";
}

std::string fish_script() {
  std::string text =
      "# Completion of rondo for fish; written by `rondo completion fish`.\n"
      "function __rondo_verb\n"
      "  set -l words (commandline -opc)\n"
      "  test (count $words) -ge 2; and test $words[2] = $argv[1]\n"
      "end\n"
      "function __rondo_no_verb\n"
      "  test (count (commandline -opc)) -eq 1\n"
      "end\n";
  for (const VerbHelp& help : config::verb_helps()) {
    text += fmt::format("complete -c rondo -f -n __rondo_no_verb -a {} -d {}\n", help.name,
                        config::shell_quoted(help.summary));
  }
  text += "complete -c rondo -f -n __rondo_no_verb -a help -d 'the keys of a verb'\n";
  text += fmt::format("complete -c rondo -f -n '__rondo_verb help' -a '{}'\n", verb_words());
  for (const VerbHelp& help : config::verb_helps()) {
    const std::string when = fmt::format("complete -c rondo -n '__rondo_verb {}'", help.name);
    const std::string bare = bare_words(help);
    if (!bare.empty()) text += fmt::format("{} -f -a '{}'\n", when, bare);
    for_keys(help, [&](const Key& key) {
      const std::string values = value_words(key);
      text += fmt::format("{} -l {} -d {}{}\n", when, key.name, config::shell_quoted(key.help),
                          values.empty() ? std::string(" -r") : fmt::format(" -x -a '{}'", values));
    });
  }
  return text;
}

}  // namespace

std::string completion_script(const std::string& shell) {
  if (shell == "bash") return bash_script();
  if (shell == "zsh") return zsh_script();
  if (shell == "fish") return fish_script();
  return {};
}

}  // namespace rondo::train
