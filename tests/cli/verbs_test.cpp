// The verbs as scripts use them: JSON on standard output, files of a run, signals.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "workspace.h"

namespace rondo::cli {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

TEST(Program, VersionAndHelp_GoToStandardOutput) {
  const Workspace workspace;
  EXPECT_THAT(workspace.run({"--version"}).out, StartsWith("rondo "));
  EXPECT_THAT(workspace.run({"--help"}).out, HasSubstr("rondo <verb>"));
  const Outcome page = workspace.run({"help", "train"});
  EXPECT_EQ(page.status, 0);
  EXPECT_EQ(page.err, "");
  EXPECT_THAT(page.out, HasSubstr("--learning_rate, lr"));
  EXPECT_EQ(workspace.run({"train", "--max_steps", "3", "--help"}).out, page.out);
}

TEST(Program, ReaderGone_IsAFailureNotASignal) {
  const Workspace workspace;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  // The child inherits nothing of the pipe but what the shell redirects.
  const std::string command = std::string(RONDO_PROGRAM) + " help >&" + std::to_string(ends[1]) + " 2>/dev/null";
  const int status = std::system(command.c_str());
  ::close(ends[1]);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

/// The files of a run may not take the numbers of streams that are closed: what is shown would go into them. Where
/// nothing is remembered, train.log would be the third file.
TEST(Program, ClosedStreams_TakeNoFilesOfARun) {
  const Workspace workspace;
  std::string command = "cd " + workspace.path().string() + " && env -i RONDO_RUNS_DB=none " RONDO_PROGRAM;
  for (const std::string& word : train()) command += " " + word;
  const int status = std::system((command + " <&- >&- 2>&-").c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  const std::string log = workspace.read("out/train.log");
  const std::size_t first = log.find("step 1/1");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(log.find("step 1/1", first + 1), std::string::npos) << log;
}

TEST(Data, Json_HoldsIdsAndLabelsAsTheTrainerSeesThem) {
  const Workspace workspace;
  const Json json = json_of(workspace.run({"data", "--model=model", "--dataset=chats.jsonl", "--samples=2", "--json"}));
  ASSERT_EQ(json["samples"].size(), 2U);
  for (const Json& sample : json["samples"]) {
    const auto ids = sample["input_ids"].get<std::vector<int>>();
    const auto labels = sample["labels"].get<std::vector<int>>();
    ASSERT_EQ(ids.size(), labels.size());
    std::size_t targets = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (labels[i] == -100) continue;
      EXPECT_EQ(labels[i], ids[i]);
      ++targets;
    }
    EXPECT_GT(targets, 0U);
    EXPECT_LT(targets, ids.size());
  }
}

TEST(Data, SeveralSetsPacked_AreReportedApartWithTheFill) {
  const Workspace workspace;
  workspace.write("texts.jsonl", "{\"text\":\"one two\"}\n{\"text\":\"three\"}\n");
  const Words words = {"data",      "--model=model",   "--dataset=chats.jsonl,texts.jsonl", "--dataset_weights=1,2",
                       "--packing", "--cutoff_len=256"};
  const Outcome shown = workspace.run(words);
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.err, HasSubstr("weight 2, "));
  EXPECT_THAT(shown.err, HasSubstr("texts.jsonl: text, JSON lines, 2 records"));
  EXPECT_THAT(shown.err, HasSubstr("packing: 7 samples in "));
  Words asked = words;
  asked.push_back("--json");
  const Json packing = json_of(workspace.run(asked))["packing"];
  EXPECT_EQ(packing["samples"], 7);
  EXPECT_DOUBLE_EQ(packing["fill"].get<double>(),
                   packing["tokens"].get<double>() / (256 * packing["sequences"].get<double>()));
}

TEST(Train, PackedRun_HasTheUnpackedLossAndSaysHowFullItIs) {
  const Workspace workspace;
  const auto loss = [&](const char* folder, Words more) {
    more.insert(more.end(),
                {"--cutoff_len=256", "--gradient_accumulation_steps=3", std::string("--output_dir=") + folder});
    Words words = train();
    words.resize(5);  // the model and its data
    words.insert(words.end(), {"--devices=cpu", "--dtype=fp32", "--max_steps=1"});
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = workspace.run(words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.err.find("packing: 3 samples in ") != std::string::npos, more[0] == "--packing") << outcome.err;
    const std::vector<Json> lines = metrics_of(workspace, folder);
    return lines.empty() ? 0.0 : lines[0].value("loss", 0.0);
  };
  const double apart = loss("apart", {"--packing=false"});
  EXPECT_NEAR(loss("packed", {"--packing"}), apart, 1e-6 * apart);
}

TEST(Train, ShortRun_LeavesTheFilesOfARun) {
  const Workspace workspace;
  const Outcome trained = workspace.run(train({"--max_steps=3", "--lr=1e-2", "--batch_size=3", "--json"}));
  EXPECT_EQ(json_of(trained)["output_dir"], "out");
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "metrics.jsonl",
                           "config.resolved.yaml", "train.log", "checkpoint-3/trainer_state.json"}) {
    EXPECT_TRUE(std::filesystem::exists(workspace.path("out") / file)) << file;
  }
  EXPECT_THAT(trained.err, HasSubstr("step 3/3"));
  EXPECT_THAT(trained.err, HasSubstr("rondo generate"));
  EXPECT_EQ(workspace.read("out/train.log"), trained.err);
  double loss = 1e9;
  int step = 0;
  for (const Json& entry : metrics_of(workspace, "out")) {
    EXPECT_EQ(entry.value("step", 0), ++step);
    EXPECT_GT(entry.value("grad_norm", 0.0), 0.0);
    // The batch is the whole data set every time.
    EXPECT_LT(entry.value("loss", 1e9), loss);
    loss = entry.value("loss", 1e9);
  }
  EXPECT_EQ(step, 3);
}

TEST(Train, CommandToTry_IsOneThatAShellTakes) {
  const Workspace workspace;
  const std::string out = "--it's out";
  std::filesystem::rename(workspace.path("model"), workspace.path("--x"));
  const Outcome outcome = workspace.run({"train", "--model=--x", "--dataset=chats.jsonl", "--devices=cpu",
                                         "--max_steps=1", "--save_steps=0", "--output_dir=" + out});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::string says = "try it: rondo ";
  const std::size_t begin = outcome.err.find(says);
  ASSERT_NE(begin, std::string::npos) << outcome.err;
  const std::size_t arguments = begin + says.size();
  const std::string command = "cd " + workspace.path().string() + " && " + RONDO_PROGRAM + " " +
                              outcome.err.substr(arguments, outcome.err.find('\n', arguments) - arguments) +
                              " --max_new_tokens 1 --devices cpu >answer";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

TEST(Train, ResolvedConfiguration_RepeatsTheRun) {
  const Workspace workspace;
  ASSERT_EQ(workspace.run(train({"--max_steps=2", "--lora_dropout=0.1"})).status, 0);
  const Outcome again = workspace.run({"train", "out/config.resolved.yaml", "--output_dir=again"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(workspace.read("out/adapter_model.safetensors"), workspace.read("again/adapter_model.safetensors"));
}

TEST(Eval, Json_HoldsFiniteNumbers) {
  const Workspace workspace;
  const Json json = json_of(workspace.run(
      {"eval", "--model=model", "--eval_dataset=chats.jsonl", "--devices=cpu", "--dtype=fp32", "--json"}));
  EXPECT_GT(json.value("eval_loss", 0.0), 0.0);
  EXPECT_GT(json.value("perplexity", 0.0), 1.0);
  EXPECT_GT(json.value("target_tokens", 0), 0);
}

TEST(Generate, TextAndJson_AreTheSameAnswer) {
  const Workspace workspace;
  const Words words = {"generate",      "--model=model", "--prompt=Hello",
                       "--devices=cpu", "--dtype=fp32",  "--max_new_tokens=8"};
  const Outcome text = workspace.run(words);
  EXPECT_EQ(text.status, 0) << text.err;
  Words with_json = words;
  with_json.push_back("--json");
  const Json json = json_of(workspace.run(with_json));
  EXPECT_EQ(json.value("text", "?") + "\n", text.out);
  EXPECT_LE(json["token_ids"].size(), 8U);
  EXPECT_GT(json["prompt_ids"].size(), 0U);
  EXPECT_THAT(json.value("finish_reason", ""), testing::AnyOf("stop", "length"));
}

TEST(PlanAndDevices, Json_IsOneDocument) {
  const Workspace workspace;
  const Json plan = json_of(workspace.run({"plan", "--model=model", "--devices=emulated:rtx4090*2", "--json"}));
  EXPECT_EQ(plan["devices"].size(), 2U);
  EXPECT_GT(plan.value("step_seconds", 0.0), 0.0);
  const Json devices = json_of(workspace.run({"devices", "--json"}));
  EXPECT_GT(devices["devices"].size(), 0U);
  const Outcome table = workspace.run({"plan", "--model=model", "--devices=emulated:rtx4090*2"});
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("rtx4090"));
}

/// What is seen only on the cards themselves is left out where there are none, and that is said.
TEST(PlanAndDevices, PlanWithoutCards_SaysWhatItDoesNotKnow) {
  const Workspace workspace;
  const std::string note = "host memory leaves out what drivers and libraries hold";
  const Outcome timed = workspace.run({"plan", "--model=model", "--devices=timed:rtx4090", "--json"});
  EXPECT_THAT(timed.err, HasSubstr(note));
  EXPECT_FALSE(json_of(timed).at("host_memory").contains("threads and caches"));
  const Outcome computing = workspace.run({"plan", "--model=model", "--devices=cpu", "--json"});
  EXPECT_THAT(computing.err, testing::Not(HasSubstr(note)));
  EXPECT_TRUE(json_of(computing).at("host_memory").contains("threads and caches"));
}

TEST(PlanAndDevices, PlanInEightBits_IsQuickerOnCardsThatHaveThemAndRefusedByNameElsewhere) {
  const Workspace workspace;
  Words words = {"plan", "--model=Qwen/Qwen3-8B", "--devices=timed:h100-sxm", "--gradient_accumulation_steps=8",
                 "--json"};
  const double sixteen = json_of(workspace.run(words)).at("step_seconds").get<double>();
  words.push_back("--fp8");
  const double eight = json_of(workspace.run(words)).at("step_seconds").get<double>();
  EXPECT_LT(eight, sixteen);
  EXPECT_GT(eight, sixteen / 2);
  const Outcome refused = workspace.run({"plan", "--model=Qwen/Qwen3-8B", "--devices=timed:rtx3090", "--fp8"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, testing::AllOf(HasSubstr("fp8"), HasSubstr("timed:rtx3090:0"), HasSubstr("8.9")));
}

/// Sum over the phases of a profiled device, of a step.
double computing_seconds(const Json& device) {
  double sum = 0;
  for (const auto& [phase, seconds] : device["phases"].items()) sum += seconds.get<double>();
  return sum;
}

TEST(Profile, OfATimedPool_SetsMeasuredBesidePredictedAndWritesTheTimeline) {
  const Workspace workspace;
  const Words words = {"profile",
                       "--model=Qwen/Qwen3-1.7B",
                       "--devices=timed:rtx4090*2",
                       "--cutoff_len=512",
                       "--gradient_accumulation_steps=4",
                       "--steps=3",
                       "--trace=timeline.json"};
  Words with_json = words;
  with_json.push_back("--json");
  const Json json = json_of(workspace.run(with_json));
  const Json& measured = json["measured"];
  EXPECT_GT(json["predicted"]["slots"].size(), 0U);
  EXPECT_GT(measured.value("step_seconds", 0.0), 0.0);
  EXPECT_DOUBLE_EQ(measured["tokens_per_second"].get<double>() * measured["step_seconds"].get<double>(), 4 * 512);
  EXPECT_GE(measured.value("bubble", -1.0), 0.0);
  ASSERT_EQ(measured["devices"].size(), 2U);
  for (const Json& device : measured["devices"]) {
    EXPECT_GT(device.value("busy", 0.0), 0.0);
    EXPECT_LE(device.value("busy", 2.0), 1.0);
    EXPECT_GT(device.value("peak_bytes", 0.0), 0.0);
    EXPECT_NEAR(computing_seconds(device), device.value("busy", 0.0) * measured["step_seconds"].get<double>(), 1e-6);
  }
  const Json timeline = Json::parse(std::ifstream(workspace.path() / "timeline.json"), nullptr, false);
  std::uint64_t last_step = 0;
  for (const Json& event : timeline["traceEvents"]) {
    if (event["ph"] == "X") last_step = std::max(last_step, event["args"]["step"].get<std::uint64_t>());
  }
  EXPECT_EQ(last_step, 3U);
  const Outcome table = workspace.run(words);
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("measured"));
}

TEST(Profile, DeviceWithoutSlots_HasAProcessInTheTimelineToo) {
  const Workspace workspace;
  const Json json = json_of(
      workspace.run({"profile", "--model=model", "--devices=timed:rtx4090,rtx3060", "--gradient_accumulation_steps=1",
                     "--cutoff_len=64", "--steps=2", "--json", "--trace=timeline.json"}));
  const Json timeline = Json::parse(std::ifstream(workspace.path() / "timeline.json"), nullptr, false);
  Words processes;
  for (const Json& event : timeline["traceEvents"]) {
    if (event["name"] == "process_name") processes.push_back(event["args"]["name"].get<std::string>());
  }
  EXPECT_EQ(processes, (Words{"timed:rtx4090:0", "timed:rtx3060:0"}));
  EXPECT_EQ(json["measured"]["devices"][1]["busy"], 0) << "the case wants a device without slots";
}

TEST(Profile, OfBackwardsInHalves_KeepsBothHalvesApart) {
  const Workspace workspace;
  const Json json = json_of(workspace.run(
      {"profile", "--model=Qwen/Qwen3-1.7B", "--finetuning_type=full", "--devices=timed:a100-80g*2", "--cutoff_len=512",
       "--gradient_accumulation_steps=4", "--schedule=zb_h1", "--steps=2", "--json"}));
  const Json& measured = json["measured"];
  ASSERT_EQ(measured["devices"].size(), 2U);
  double busy = 0;
  for (const Json& device : measured["devices"]) {
    EXPECT_GT(device["phases"].value("backward", 0.0) + device["phases"].value("fused", 0.0), 0.0);
    EXPECT_GT(device["phases"].value("weight_gradient", 0.0), 0.0);
    EXPECT_NEAR(computing_seconds(device), device.value("busy", 0.0) * measured["step_seconds"].get<double>(), 1e-6);
    busy += device.value("busy", 0.0) / 2;
  }
  EXPECT_NEAR(measured.value("bubble", -1.0), 1 - busy, 1e-6);
}

TEST(Profile, OfTheCpu_TrainsInMemoryAndLeavesNothing) {
  const Workspace workspace;
  const auto before = workspace.snapshot();
  const Json json = json_of(workspace.run({"profile", "--model=model", "--dataset=chats.jsonl", "--devices=cpu",
                                           "--cutoff_len=64", "--steps=2", "--json"}));
  EXPECT_GT(json["measured"]["devices"][0].value("busy", 0.0), 0.0);
  EXPECT_TRUE(workspace.snapshot() == before);
}

TEST(Train, InterruptedOnce_SavesAndExits130ThenGoesOn) {
  const Workspace workspace;
  Process process(train({"--max_steps=100000", "--save_steps=0"}), workspace.path().string());
  ASSERT_TRUE(process.says("step 1/"));
  process.send(SIGINT);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.find("error: "), std::string::npos) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("--resume_from_checkpoint auto"));
  std::vector<std::string> checkpoints;
  for (const auto& entry : std::filesystem::directory_iterator(workspace.path("out"))) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("checkpoint-")) checkpoints.push_back(name.substr(name.find('-') + 1));
  }
  ASSERT_EQ(checkpoints.size(), 1U);
  const std::string end = std::to_string(std::stoull(checkpoints[0]) + 2);
  const Outcome resumed = workspace.run(train({"--max_steps=" + end, "--save_steps=0", "--resume_from_checkpoint"}));
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("checkpoint-" + checkpoints[0]));
  EXPECT_THAT(resumed.err, HasSubstr("step " + end + "/" + end));
}

TEST(Train, InterruptedBeforeItsFirstStep_EndsAtOnceAndLeavesNothing) {
  const Workspace workspace;
  const std::string data = workspace.path("pipe.jsonl").string();
  ASSERT_EQ(::mkfifo(data.c_str(), 0600), 0);
  Process process(train({"--dataset=" + data}), workspace.path().string());
  // It opens when the run begins to read its data, which never come.
  const int writer = ::open(data.c_str(), O_WRONLY);  // NOLINT(cppcoreguidelines-pro-type-vararg)
  ASSERT_GE(writer, 0);
  process.send(SIGINT);
  const Outcome outcome = process.wait();
  ::close(writer);
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_FALSE(std::filesystem::exists(workspace.path("out")));
}

TEST(Train, DryRunInterruptedInItsStep_SaysThatNothingIsKept) {
  const Workspace workspace;
  std::string lines;  // enough for a step of seconds
  for (int i = 0; i < 4000; ++i) lines += "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
  workspace.write("many.jsonl", lines);
  const auto before = workspace.snapshot();
  const Words words = train({"--dry_run", "--dataset=many.jsonl", "--gradient_accumulation_steps=4000"});
  Outcome outcome;
  // Before the step begins it ends without a word: then once more, later by less than a step takes.
  for (int pause = 20; pause < 20000 && outcome.err.find("interrupted") == std::string::npos; pause += pause / 2) {
    Process process(words, workspace.path().string());
    ASSERT_TRUE(process.says("targets marked"));
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    process.send(SIGINT);
    outcome = process.wait();
  }
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("interrupted; a dry run keeps nothing"));
  EXPECT_EQ(outcome.err.find("checkpoint"), std::string::npos) << outcome.err;
  EXPECT_TRUE(workspace.snapshot() == before);
}

TEST(Train, InterruptedTwice_EndsAtOnce) {
  const Workspace workspace;
  // To end at once is to leave threads where they are, which the thread sanitizer would have for a leak.
  const char* const before = std::getenv("TSAN_OPTIONS");
  const std::string options = before != nullptr ? before : "";
  ::setenv("TSAN_OPTIONS", (options + ":report_thread_leaks=0").c_str(), /*overwrite=*/1);
  Process process(train({"--max_steps=100000", "--save_steps=0"}), workspace.path().string());
  ASSERT_TRUE(process.says("step 1/"));
  process.send(SIGINT);
  process.send(SIGTERM);
  EXPECT_EQ(process.wait().status, 130);
  ::setenv("TSAN_OPTIONS", options.c_str(), /*overwrite=*/1);
}

TEST(Train, ClosedTerminal_IsSavedForHoweverOftenItIsTold) {
  const Workspace workspace;
  Process process(train({"--max_steps=100000", "--save_steps=0"}), workspace.path().string());
  ASSERT_TRUE(process.says("step 1/"));
  process.send(SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));  // two that are pending at once would be one
  process.send(SIGHUP);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("interrupted; a checkpoint was saved"));
}

TEST(Train, HangupThatWasIgnoredBefore_IsIgnored) {
  const Workspace workspace;
  const auto before = ::signal(SIGHUP, SIG_IGN);  // as nohup does; the process inherits it
  Process process(train({"--max_steps=100000", "--save_steps=0"}), workspace.path().string());
  ::signal(SIGHUP, before);
  ASSERT_TRUE(process.says("step 1/"));
  process.send(SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(process.err().find("interrupted"), std::string::npos);
  process.send(SIGTERM);
  EXPECT_THAT(process.wait().err, HasSubstr("interrupted; a checkpoint was saved"));
}

}  // namespace
}  // namespace rondo::cli
