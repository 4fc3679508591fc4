// The key sweep: its axes, in any order and with either separator, and what is refused.
#include "config_test_util.h"
#include "rondo/train/config_sweep.h"

namespace rondo::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<Config> plan(const std::string& sweep, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--model=m", "--sweep", sweep});
  return parse_arguments("plan", more);
}

config::Sweep parsed(const std::string& text, std::vector<std::string> more = {}) {
  const auto config = plan(text, std::move(more));
  EXPECT_TRUE(config.ok()) << config.status();
  return *config::parse_sweep(*config);
}

TEST(Sweep, BothAxes_AreReadInAnyOrderAndWithEitherSeparator) {
  for (const char* text : {"global_batch=8,16,32;devices=cpu|timed:rtx4090*2,timed:rtx3060",
                           "global_batch=32,8,16,16,devices=cpu|timed:rtx4090*2,timed:rtx3060",
                           "devices=cpu|timed:rtx4090*2,timed:rtx3060;global_batch=8,16,32"}) {
    const config::Sweep sweep = parsed(text);
    EXPECT_THAT(sweep.global_batches, ElementsAre(8, 16, 32)) << text;
    EXPECT_THAT(sweep.devices, ElementsAre("cpu", "timed:rtx4090*2,timed:rtx3060")) << text;
  }
}

TEST(Sweep, AxisLeftOut_IsAsTheConfigurationSays) {
  EXPECT_THAT(parsed("global_batch=4", {"--devices=cpu*2"}).devices, ElementsAre("cpu*2"));
  EXPECT_THAT(parsed("devices=cpu", {"--batch_size=3", "--gradient_accumulation_steps=5"}).global_batches,
              ElementsAre(15));
}

TEST(Sweep, BadValues_AreRefusedByName) {
  const std::vector<std::pair<const char*, const char*>> bad = {
      {"batch=8", "'batch=8'"},
      {"8,16", "'8,16'"},
      {"global_batch=", "''"},
      {"global_batch=8,,16", "''"},
      {"global_batch=0", "'0'"},
      {"global_batch=-8", "'-8'"},
      {"global_batch=8;global_batch=16", "'8;global_batch=16'"},
      {"global_batch=99999999999", "99999999999"},
      {"devices=cpu||cpu", "empty"},
      {"global_batch=8;devices=", "empty"}};
  for (const auto& [text, found] : bad) {
    EXPECT_THAT(message_of(plan(text)), testing::AllOf(HasSubstr("--sweep"), HasSubstr(found))) << text;
  }
  EXPECT_THAT(message_of(plan("global_batch=9", {"--batch_size=2"})), HasSubstr("per_device_train_batch_size 2"));
  EXPECT_THAT(message_of(plan("global_batch=8", {"--compare"})), HasSubstr("--compare"));
  // No more than can be counted, also where the batch is the product of two keys.
  EXPECT_THAT(message_of(plan("global_batch=8589934592", {"--batch_size=65536"})), HasSubstr("8589934592"));
  EXPECT_THAT(message_of(plan("devices=cpu", {"--batch_size=65536", "--gradient_accumulation_steps=65536"})),
              HasSubstr("4294967296"));
  EXPECT_THAT(message_of(parse_arguments("plan", {"--model=m", "--plot=x.svg"})), HasSubstr("--plot"));
}

}  // namespace
}  // namespace rondo::train
