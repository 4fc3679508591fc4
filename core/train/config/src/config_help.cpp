// Help pages and the resolved file, both written from the table of keys.
#include <fmt/format.h>

#include "config_keys.h"
#include "rondo/train/config.h"
#include "rondo/train/config_text.h"

namespace rondo::train {

const std::vector<config::VerbHelp>& config::verb_helps() {
  static const std::vector<VerbHelp> helps = {
      {"init", "make a small random model, so that everything can be tried at once", "[--key value]...",
       "rondo init --arch llama --output_dir tiny"},
      {"data", "show samples as the trainer sees them, with their targets marked", "[config.yaml] [--key value]...",
       "rondo data --model_name_or_path tiny --dataset chats.jsonl --samples 3"},
      {"devices", "list the devices of this machine", "[--key value]...", "rondo devices --bench --json"},
      {"plan", "what a run would take in time and memory, before it takes it", "[config.yaml] [--key value]...",
       "rondo plan run.yaml --devices emulated:rtx4090*4"},
      {"profile", "time some steps and set them beside the plan", "[config.yaml] [--key value]...",
       "rondo profile run.yaml --steps 5 --trace timeline.json"},
      {"train", "fine-tune a model", "[config.yaml] [--key value]...",
       "rondo train --model_name_or_path tiny --dataset chats.jsonl --output_dir out"},
      {"eval", "loss and perplexity of a model on a data set", "[config.yaml] [--key value]...",
       "rondo eval --model_name_or_path tiny --adapter_name_or_path out --eval_dataset test.jsonl"},
      {"generate", "let a model answer", "[config.yaml] --prompt TEXT [--key value]...",
       "rondo generate --model_name_or_path tiny --adapter_name_or_path out --prompt 'Hello'"},
      {"chat", "talk with a model, turn by turn", "[config.yaml] [--key value]...",
       "rondo chat --model_name_or_path tiny --adapter_name_or_path out --temperature 0.7"},
      {"merge", "fold an adapter into its base: a model of its own", "[config.yaml] [--key value]...",
       "rondo merge --model_name_or_path tiny --adapter_name_or_path out --output_dir merged"},
      {"export", "write a model or an adapter as a GGUF file", "[config.yaml] [--key value]...",
       "rondo export --model_name_or_path merged --format gguf --output merged.gguf --quantization q8_0"},
      {"runs", "list the runs of this user, or those in a folder", "[FOLDER]... [--json]",
       "rondo runs experiments --json"},
      {"report", "one run, or two side by side, as a page of HTML with curves", "RUN [RUN2] --output FILE.html",
       "rondo report out --output report.html"},
      {"import", "turn a configuration of Axolotl or LLaMA-Factory into one of Rondo", "FILE.yaml [--key value]...",
       "rondo import qlora.yaml --output run.yaml"},
      {"doctor", "whether this machine can train, and what to install", "[config.yaml] [--key value]...",
       "rondo doctor --nvme_path /mnt/fast"},
      {"completion", "the script that completes verbs and keys in a shell", "bash|zsh|fish",
       "rondo completion bash > ~/.local/share/bash-completion/completions/rondo"},
      {"man", "the manual page, in roff", "", "rondo man > rondo.1"},
  };
  return helps;
}

namespace {

using config::Key;
using config::VerbHelp;

std::string overview() {
  std::string text =
      "rondo: fine-tune language models on the devices of one machine\n\n"
      "  rondo <verb> [config.yaml] [--key value]...\n\n"
      "Flags win over the file. `-` and `_` are equal in keys; a flag without a value is `true`.\n\n";
  for (const VerbHelp& verb : config::verb_helps()) text += fmt::format("  {:<12}{}\n", verb.name, verb.summary);
  text +=
      "\n`rondo help <verb>` lists the keys of a verb, `rondo --version` tells the version.\n"
      "Results go to standard output, everything else to standard error. Exit status: 0 done, 1 the work failed,\n"
      "2 the command line, the configuration or an input file is wrong, 130 interrupted after saving.\n";
  return text;
}

std::string key_help(const Key& key) {
  std::string names = key.name;
  for (const std::string& alias : key.aliases) names += ", " + alias;
  std::string line = fmt::format("  --{}\n      {}", names, key.help);
  if (!key.choices.empty() && key.unavailable.empty()) line += fmt::format(": {}", config::expectation(key));
  const std::string fallback = config::value_text(Config{}, key);
  line += fallback.empty() ? "\n" : fmt::format(" [{}]\n", fallback);
  if (!key.unavailable.empty()) line += fmt::format("      (in this build only {})\n", config::expectation(key));
  return line;
}

}  // namespace

std::string help_text(const std::string& verb) {
  for (const VerbHelp& help : config::verb_helps()) {
    if (verb != help.name) continue;
    std::string text = fmt::format("rondo {}{}{}\n\n{}\n", help.name, *help.arguments == '\0' ? "" : " ",
                                   help.arguments, help.summary);
    std::string group;
    for (const Key& key : config::keys()) {
      if ((key.verbs & config::verb_bit(verb)) == 0) continue;
      if (key.group != group) text += fmt::format("\n{}\n", key.group);
      group = key.group;
      text += key_help(key);
    }
    return text + fmt::format("\nExample\n  {}\n", help.example);
  }
  return overview();
}

std::string format_resolved(const Config& config) {
  std::string text;
  std::string group;
  for (const Key& key : config::training_keys()) {
    if (key.group != group) text += fmt::format("{}# {}\n", group.empty() ? "" : "\n", key.group);
    group = key.group;
    const std::string value = config::value_text(config, key);
    const bool is_text = std::holds_alternative<std::string Config::*>(key.member);
    text += fmt::format("{}: {}\n", key.name, is_text ? config::yaml_quoted(value) : value);
  }
  return text;
}

}  // namespace rondo::train
