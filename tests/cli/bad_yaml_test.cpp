// Bad configuration files.
#include "workspace.h"

namespace rondo::cli {
namespace {

/// `rondo train run.yaml` with the workspace's model and data in the file, then `text` from its fourth line on.
BadInput yaml(const char* name, const std::string& text, Words named) {
  return {name,
          [text](const Workspace& workspace) -> Words {
            workspace.write("run.yaml", "model: model\ndataset: chats.jsonl\noutput_dir: out\n" + text);
            return {"train", "run.yaml"};
          },
          std::move(named)};
}

BadInput whole(const char* name, const std::string& text, Words named) {
  return {name,
          [text](const Workspace& workspace) -> Words {
            workspace.write("run.yaml", text);
            return {"train", "run.yaml"};
          },
          std::move(named)};
}

class BadYaml : public testing::TestWithParam<BadInput> {};

TEST_P(BadYaml, Refused_WithFileAndLine) { expect_refusal(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Keys, BadYaml,
                         testing::Values(yaml("UnknownKey", "lora_rnk: 3\n", {"run.yaml:4", "lora_rnk", "lora_rank"}),
                                         yaml("KeyTwice", "seed: 1\nseed: 2\n", {"run.yaml:5", "run.yaml:4", "seed"}),
                                         yaml("KeyAndAlias", "lr: 1e-4\nlearning_rate: 1e-4\n",
                                              {"run.yaml:5", "learning_rate"}),
                                         yaml("NestedMap", "optimizer:\n  lr: 1\n", {"run.yaml:4", "optimizer"}),
                                         yaml("MapAsValue", "seed: {a: 1}\n", {"run.yaml:4", "seed", "a map"}),
                                         yaml("ListAsKey", "? [a]\n: 1\n", {"run.yaml:4"})),
                         name_of);

INSTANTIATE_TEST_SUITE_P(
    Values, BadYaml,
    testing::Values(yaml("TextForANumber", "learning_rate: fast\n", {"run.yaml:4", "learning_rate", "'fast'"}),
                    yaml("NumberForABoolean", "shuffle: 3\n", {"run.yaml:4", "shuffle", "'3'"}),
                    yaml("NotANumber", "learning_rate: .nan\n", {"run.yaml:4", "'.nan'"}),
                    yaml("NothingForANumber", "learning_rate:\n", {"run.yaml:4", "nothing"}),
                    yaml("ListForANumber", "seed: [1, 2]\n", {"run.yaml:4", "a list"}),
                    yaml("ListForAPath", "nvme_path: [a, b]\n", {"run.yaml:4", "a list"}),
                    yaml("MapInAList", "lora_target: [{a: 1}]\n", {"run.yaml:4", "lora_target"}),
                    yaml("OutOfRange", "warmup_ratio: 1.5\n", {"run.yaml:4", "warmup_ratio", "'1.5'"}),
                    yaml("NotInThisBuild", "greater_is_better: true\n", {"run.yaml:4", "greater_is_better"}),
                    yaml("WeightsOfAnotherNumberOfSets", "dataset_weights: [2, 1]\n",
                         {"run.yaml:4", "dataset_weights", "found 2"}),
                    yaml("Contradiction", "eval_steps: 3\n", {"run.yaml:4", "eval_steps"})),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Files, BadYaml,
    testing::Values(command("Missing", {"train", "nowhere.yaml"}, {"nowhere.yaml"}),
                    command("Folder", {"train", "model"}, {"model"}), whole("Empty", "", {"run.yaml"}),
                    yaml("QuoteNeverClosed", "optim: \"sgd\n", {"run.yaml:4", "EOF"}),
                    whole("OnlyComments", "# a\n\n", {"run.yaml"}),
                    whole("List", "- a\n- b\n", {"run.yaml:1", "a list"}),
                    whole("Words", "just words\n", {"run.yaml:1", "text"}), whole("Json", "[1, 2", {"run.yaml"}),
                    whole("Binary",
                          std::string("\x7f"
                                      "ELF\x02\x01\0\0",
                                      8),
                          {"run.yaml:1"}),
                    whole("Utf16", std::string("\xff\xfes\0e\0e\0d\0", 10), {"run.yaml:1"}),
                    whole("DeepNesting", std::string(100000, '['), {"run.yaml"}),
                    yaml("Tab", "\tseed: 1\n", {"run.yaml:4", "a tab"}), yaml("OpenQuote", "seed: 'x\n", {"run.yaml"}),
                    yaml("OpenBracket", "lora_target: [q\n", {"run.yaml"}),
                    yaml("Indentation", "  seed: 1\n", {"run.yaml"}),
                    yaml("UnknownAnchor", "seed: *x\n", {"run.yaml:4"}),
                    yaml("TwoDocuments", "---\nseed: 1\n", {"run.yaml", "one YAML document"})),
    name_of);

}  // namespace
}  // namespace rondo::cli
