// Bad devices, checkpoints to resume from, output folders, and models to make.
#include <gmock/gmock.h>

#include "workspace.h"

namespace rondo::cli {
namespace {

class BadRun : public testing::TestWithParam<BadInput> {};

TEST_P(BadRun, Refused_NamingTheCulprit) { expect_refusal(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Devices, BadRun,
    testing::Values(command("UnknownBackend", train({"--devices=tpu:0"}), {"tpu"}),
                    command("UnknownCard", train({"--devices=emulated:rtx9999"}), {"rtx9999"}),
                    command("NoSuchCpu", train({"--devices=cpu:7"}), {"cpu:7"}),
                    command("NoTimes", train({"--devices=cpu*0"}), {"cpu*0"}),
                    command("HoleInTheList", train({"--devices=cpu,,cpu"}), {"'cpu,,cpu'"}),
                    command("TimedMixed", train({"--devices=timed:rtx4090,cpu"}), {"devices"}),
                    command("CatalogueMissing", train({"--devices=emulated:cards.yaml#a"}), {"cards.yaml"}),
                    BadInput{"CatalogueBroken",
                             [](const Workspace& workspace) {
                               workspace.write("cards.yaml", "fast:\n  flops: {bf16: quick}\n");
                               return train({"--devices=emulated:cards.yaml#fast"});
                             },
                             {"cards.yaml", "fast"}},
                    command("ListOfUnknown", {"devices", "--devices=warp:3"}, {"warp"}),
                    command("LimitNoSize", train({"--memory_limit=cpu:0=lots"}), {"memory_limit", "lots"}),
                    command("LimitTwice", train({"--devices=cpu", "--memory_limit=cpu:0=1GiB,cpu:0=2GiB"}),
                            {"memory_limit", "cpu:0", "twice"}),
                    command("LimitOfNoDevice", train({"--memory_limit=cuda:5=8GiB"}), {"cuda:5"}),
                    command("HostLimitNoSize", train({"--host_memory_limit=8Gigs"}), {"host_memory_limit", "8Gigs"}),
                    command("HostMissing", train({"--host=hosts.yaml#big"}), {"hosts.yaml"})),
    name_of);

Words on_a_card(const Words& words) {
  Words all = words;
  all.insert(all.end(), {"--model=model", "--devices=timed:rtx3060"});
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    FileToWrite, BadRun,
    testing::Values(
        command("TraceIsAFolder", on_a_card({"profile", "--steps=2", "--trace=model"}), {"trace", "model"}),
        command("TraceBelowAFile", on_a_card({"profile", "--steps=2", "--trace=chats.jsonl/t.json"}),
                {"trace", "chats.jsonl/t.json"}),
        command("ExportToNoFolder", {"export", "--model=model", "--format=gguf", "--output=/proc/model.gguf"},
                {"output", "/proc/model.gguf"}),
        command("PlotIsAFolder", on_a_card({"plan", "--sweep=global_batch=2", "--plot=model"}), {"plot", "model"})),
    name_of);

Words over_the_model(const Words& more) {
  Words words = train({"--finetuning_type=full", "--output_dir=model/../model"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const Words kOverTheModel = {"output_dir: model/../model is the folder of the model to train"};

INSTANTIATE_TEST_SUITE_P(
    ResultOverTheModel, BadRun,
    testing::Values(command("Plain", over_the_model({}), kOverTheModel),
                    command("GoneOn", over_the_model({"--resume_from_checkpoint=auto"}), kOverTheModel),
                    command("Overwritten", over_the_model({"--overwrite_output_dir"}), kOverTheModel),
                    BadInput{"BehindALink",
                             [](const Workspace& workspace) {
                               std::filesystem::create_directory_symlink("model", workspace.path("link"));
                               return over_the_model({"--model=link", "--overwrite_output_dir"});
                             },
                             kOverTheModel}),
    name_of);

INSTANTIATE_TEST_SUITE_P(Method, BadRun,
                         testing::Values(command("UnknownTarget", train({"--lora_target=w_proj"}), {"w_proj"}),
                                         command("OneTargetUnknown", train({"--lora_target=q_proj,w_proj"}),
                                                 {"w_proj"})),
                         name_of);

Words with_state(const Words& more) {
  Words words = train({"--optimizer_state=device"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

INSTANTIATE_TEST_SUITE_P(
    StateOnTheCard, BadRun,
    testing::Values(
        command("UnknownPlace", train({"--optimizer_state=moon"}), {"optimizer_state", "moon"}),
        command("OfTheProcessor", with_state({"--devices=cpu"}), {"optimizer_state", "cpu:0"}),
        command("OfTwo", with_state({"--devices=emulated:rtx3060*2"}), {"optimizer_state", "2 devices"}),
        command("OfAnotherOptimizer", with_state({"--devices=emulated:rtx3060", "--optim=lion"}),
                {"optimizer_state", "lion"}),
        command("OfAnotherOptimizerPlanned",
                {"plan", "--model=model", "--devices=emulated:rtx3060", "--optimizer_state=device", "--optim=sgd"},
                {"optimizer_state", "sgd"}),
        command("OfAnotherOptimizerProfiled",
                {"profile", "--model=model", "--devices=emulated:rtx3060", "--optimizer_state=device", "--optim=sgd"},
                {"optimizer_state", "sgd"}),
        command("OfTwoSteps", with_state({"--devices=emulated:rtx3060", "--staleness=1"}),
                {"optimizer_state", "staleness"}),
        command("OfTwoGroups",
                with_state({"--devices=emulated:rtx3060", "--gradient_accumulation_steps=4", "--reduction_group=2"}),
                {"optimizer_state", "reduction_group: 4"})),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Resume, BadRun,
    testing::Values(command("Missing", train({"--resume_from_checkpoint=nowhere"}),
                            {"resume_from_checkpoint: ", "nowhere"}),
                    command("NoCheckpoint", train({"--resume_from_checkpoint=model"}),
                            {"resume_from_checkpoint: ", "trainer_state.json"}),
                    BadInput{"FolderOfARun",
                             [](const Workspace& workspace) {
                               EXPECT_EQ(workspace.run(train({"--output_dir=first"})).status, 0);
                               return train({"--resume_from_checkpoint=first"});
                             },
                             {"first is the folder of a run", "first/checkpoint-1"}},
                    BadInput{"StateNoJson",
                             [](const Workspace& workspace) {
                               workspace.write("checkpoint-1/trainer_state.json", "{");
                               return train({"--resume_from_checkpoint=checkpoint-1"});
                             },
                             {"trainer_state.json"}},
                    BadInput{"StateOfAnotherProgram",
                             [](const Workspace& workspace) {
                               workspace.write("checkpoint-1/trainer_state.json", "{\"global_step\": 1}");
                               return train({"--resume_from_checkpoint=checkpoint-1"});
                             },
                             {"trainer_state.json"}},
                    BadInput{"AnotherSeed",
                             [](const Workspace& workspace) {
                               EXPECT_EQ(workspace.run(train({"--output_dir=first"})).status, 0);
                               return train({"--resume_from_checkpoint=first/checkpoint-1", "--seed=8"});
                             },
                             {"seed"}},
                    BadInput{"OptimizerMissing",
                             [](const Workspace& workspace) {
                               EXPECT_EQ(workspace.run(train({"--output_dir=first"})).status, 0);
                               workspace.remove("first/checkpoint-1/optimizer.safetensors");
                               return train({"--resume_from_checkpoint=first/checkpoint-1"});
                             },
                             {"optimizer.safetensors"}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    OutputDir, BadRun,
    testing::Values(command("File", train({"--output_dir=chats.jsonl"}), {"output_dir", "chats.jsonl"}),
                    command("BelowAFile", train({"--output_dir=chats.jsonl/out"}), {"output_dir", "chats.jsonl/out"}),
                    command("NotWritable", train({"--output_dir=/proc/out"}), {"output_dir", "/proc/out"}),
                    command("TheModelItself", train({"--output_dir=model"}), {"output_dir", "model"}),
                    BadInput{"EarlierRun",
                             [](const Workspace& workspace) {
                               EXPECT_EQ(workspace.run(train()).status, 0);
                               return train();
                             },
                             {"output_dir", "out"}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Init, BadRun,
    testing::Values(command("UnknownArchitecture", {"init", "--arch=mamba", "--output_dir=out"}, {"mamba"}),
                    command("HeadsDoNotDivide",
                            {"init", "--arch=llama", "--output_dir=out", "--hidden_size=65", "--num_attention_heads=4"},
                            {"hidden_size"}),
                    command("VocabularyTooSmall", {"init", "--arch=llama", "--output_dir=out", "--vocab_size=10"},
                            {"vocab_size"}),
                    command("FolderInUse", {"init", "--arch=llama", "--output_dir=model"}, {"model"}),
                    command("FolderIsAFile", {"init", "--arch=llama", "--output_dir=chats.jsonl"}, {"chats.jsonl"}),
                    command("FolderBelowAFile", {"init", "--arch=llama", "--output_dir=chats.jsonl/model"},
                            {"output_dir", "chats.jsonl/model"}),
                    command("FolderNotWritable", {"init", "--arch=llama", "--output_dir=/proc/model"},
                            {"output_dir", "/proc/model"}),
                    command("LayersZero", {"init", "--arch=llama", "--output_dir=out", "--num_hidden_layers=0"},
                            {"--num_hidden_layers"})),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    OtherVerbs, BadRun,
    testing::Values(command("PlanWithoutModel", {"plan", "--model=nowhere"}, {"nowhere"}),
                    command("GenerateWithoutModel", {"generate", "--model=nowhere", "--prompt=x"}, {"nowhere"}),
                    command("GenerateOnTimed", {"generate", "--model=model", "--prompt=x", "--devices=timed:rtx4090"},
                            {"timed:rtx4090"}),
                    command("EvaluateOnTimed",
                            {"eval", "--model=model", "--eval_dataset=chats.jsonl", "--devices=timed:rtx4090"},
                            {"timed:rtx4090"}),
                    BadInput{"NoTemplateForAMessage",
                             [](const Workspace& workspace) -> Words {
                               workspace.remove("model/chat_template.jinja");
                               workspace.write("model/tokenizer_config.json", "{\"eos_token\": \"<|im_end|>\"}");
                               return {"generate", "--model=model", "--prompt=x", "--devices=cpu"};
                             },
                             {"chat template"}}),
    name_of);

}  // namespace
}  // namespace rondo::cli
