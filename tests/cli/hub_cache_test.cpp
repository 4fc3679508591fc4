// Models by Hub id, from the outside: where the cache is looked for, which revision is taken, what a download that was
// cut short looks like. Nothing is ever fetched.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>

#include "workspace.h"

namespace rondo::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";
constexpr const char* kOther = "fedcba9876543210fedcba9876543210fedcba98";

/// The cache lies below the workspace; no variable of the machine counts.
void set_cache() {
  ::setenv("HF_HUB_CACHE", "hub", 1);
  ::unsetenv("HF_HOME");
}

/// Moves `model` into the cache as the Hub's client would: blobs, a snapshot of links, a ref.
void put_in_cache(const Workspace& workspace, const std::string& hub = "hub") {
  const std::string base = hub + "/models--acme--tiny/";
  fs::create_directories(workspace.path(base + "blobs"));
  fs::create_directories(workspace.path(base + "snapshots/" + kCommit));
  int blob = 0;
  for (const auto& entry : fs::directory_iterator(workspace.path("model"))) {
    const std::string name = "blob" + std::to_string(blob++);
    fs::rename(entry.path(), workspace.path(base + "blobs/" + name));
    fs::create_symlink("../../blobs/" + name,
                       workspace.path(base + "snapshots/" + kCommit + "/" + entry.path().filename().string()));
  }
  workspace.remove("model");
  workspace.write(base + "refs/main", std::string(kCommit) + "\n");
}

std::string in_snapshot(const std::string& name, const char* commit = kCommit) {
  return std::string("hub/models--acme--tiny/snapshots/") + commit + "/" + name;
}

Words generate(const Words& more = {}) {
  Words words = {"generate", "--model=acme/tiny", "--prompt=Hello", "--devices=cpu", "--max_new_tokens=4"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void expect_answer(const Workspace& workspace, const Words& words) {
  const Outcome outcome = workspace.run(words);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST(HubCache, Variables_SayWhereItIs) {
  const Workspace workspace;
  set_cache();
  put_in_cache(workspace);
  expect_answer(workspace, generate());
  ::unsetenv("HF_HUB_CACHE");
  ::setenv("HF_HOME", ".", 1);
  expect_answer(workspace, generate());
  ::unsetenv("HF_HOME");
  fs::create_directories(workspace.path(".cache/huggingface"));
  fs::rename(workspace.path("hub"), workspace.path(".cache/huggingface/hub"));
  ::setenv("HOME", ".", 1);
  expect_answer(workspace, generate());
}

TEST(HubCache, Revision_IsARefOrACommit) {
  const Workspace workspace;
  set_cache();
  put_in_cache(workspace);
  fs::copy(workspace.path(in_snapshot("")), workspace.path(in_snapshot("", kOther)), fs::copy_options::recursive);
  workspace.remove(in_snapshot("tokenizer.json", kOther));
  workspace.write("hub/models--acme--tiny/refs/pr/1", kOther);
  expect_answer(workspace, generate());
  expect_answer(workspace, generate({std::string("--model_revision=") + kCommit}));
  for (const std::string& revision : {std::string("pr/1"), std::string(kOther)}) {
    const Outcome outcome = workspace.run(generate({"--revision=" + revision}));
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, testing::AllOf(testing::HasSubstr(kOther), testing::HasSubstr("expected tokenizer.json")));
  }
}

TEST(HubCache, SnapshotOfAGguf_IsRead) {
  const Workspace workspace;
  set_cache();
  fs::create_directories(workspace.path(in_snapshot("")));
  const Outcome made = workspace.run({"export", "--model=model", "--output=" + in_snapshot("tiny-f32.gguf")});
  ASSERT_EQ(made.status, 0) << made.err;
  workspace.write("hub/models--acme--tiny/refs/main", kCommit);
  expect_answer(workspace, generate());
}

TEST(HubCache, KnownModel_IsPlannedWithoutFiles) {
  const Workspace workspace;
  set_cache();
  const Outcome plan = workspace.run({"plan", "--model=Qwen/Qwen3-0.6B", "--devices=timed:rtx4090", "--json"});
  EXPECT_EQ(plan.status, 0) << plan.err;
}

BadInput broken_cache(const char* name, const std::function<void(const Workspace&)>& breaker, Words named,
                      Words more = {}) {
  return {name,
          [=](const Workspace& workspace) {
            set_cache();
            put_in_cache(workspace);
            breaker(workspace);
            return generate(more);
          },
          std::move(named)};
}

class BadCache : public testing::TestWithParam<BadInput> {};

TEST_P(BadCache, Refused_SayingWhatIsMissing) { expect_refusal(GetParam()); }

/// The weights as two shards, of which the second has not arrived.
void cut_short(const Workspace& workspace) {
  fs::rename(workspace.path(in_snapshot("model.safetensors")), workspace.path(in_snapshot("a.safetensors")));
  workspace.write(in_snapshot("model.safetensors.index.json"),
                  R"({"weight_map":{"model.norm.weight":"a.safetensors","lm_head.weight":"b.safetensors"}})");
}

INSTANTIATE_TEST_SUITE_P(
    Inputs, BadCache,
    testing::Values(
        broken_cache("NoModel", [](const Workspace& workspace) { workspace.remove("hub/models--acme--tiny"); },
                     {"acme/tiny", "models--acme--tiny"}),
        broken_cache("NoRef", [](const Workspace& workspace) { workspace.remove("hub/models--acme--tiny/refs"); },
                     {"refs/main", kCommit, "model_revision"}),
        broken_cache("OtherRevision", [](const Workspace&) {}, {"refs/v2", "the refs main"}, {"--model_revision=v2"}),
        broken_cache("RevisionLeadsOut", [](const Workspace&) {}, {"model_revision", "../.."},
                     {"--model_revision=../../x"}),
        broken_cache("RefOfNothing",
                     [](const Workspace& workspace) { workspace.write("hub/models--acme--tiny/refs/main", "\n"); },
                     {"refs/main", "commit"}),
        broken_cache("RefLeadsOut",
                     [](const Workspace& workspace) {
                       workspace.write("hub/models--acme--tiny/refs/main", "../blobs");
                     },
                     {"refs/main", "commit"}),
        broken_cache("NoSnapshot", [](const Workspace& workspace) { workspace.remove(in_snapshot("")); },
                     {"refs/main", kCommit, "no snapshot"}),
        broken_cache("NoConfig", [](const Workspace& workspace) { workspace.remove(in_snapshot("config.json")); },
                     {kCommit, "config.json", "incomplete"}),
        broken_cache("LinkToNothing",
                     [](const Workspace& workspace) {
                       fs::remove(workspace.path(in_snapshot("tokenizer_config.json")));
                       fs::create_symlink("../../blobs/none", workspace.path(in_snapshot("tokenizer_config.json")));
                     },
                     {"tokenizer_config.json", "blobs/none", "incomplete"}),
        broken_cache("ShardMissing", cut_short, {"model.safetensors.index.json", "b.safetensors", "incomplete"}),
        broken_cache("ShardLinkToNothing",
                     [](const Workspace& workspace) {
                       cut_short(workspace);
                       fs::create_symlink("../../blobs/none", workspace.path(in_snapshot("b.safetensors")));
                     },
                     {"b.safetensors", "blobs/none", "incomplete"})),
    name_of);

}  // namespace
}  // namespace rondo::cli
