// Catalogue cards are complete; files are checked key by key; failure plans follow their grammar.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "rondo/devices/profile.h"

namespace rondo::devices {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Writes `contents` to a fresh file and returns its path.
std::string yaml_file(const std::string& contents) {
  static int count = 0;
  const auto path = std::filesystem::path(testing::TempDir()) /
                    ("rondo_cards_" + std::to_string(::getpid()) + "_" + std::to_string(count++) + ".yaml");
  std::ofstream(path) << contents;
  return path.string();
}

constexpr const char* kFast =
    "fast: {flops: {bf16: 1.65e+14, fp32: 82e12}, memory_bytes: 24e9, memory_bandwidth: 1.0e12, link_up: 25e9,\n"
    "       link_down: 20e9, link_latency: 2e-5, efficiency: 0.5, jitter: 0, weights_in_place: true, root: a, fail_at: "
    "'error@compute:17'}\n";

template <typename T>
std::string message(const absl::StatusOr<T>& result) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(result.status().message());
}

TEST(CardCatalogue, EveryCard_IsCompleteAndUnique) {
  std::set<std::string> names;
  for (const DeviceProfile& card : card_catalogue()) {
    EXPECT_TRUE(names.insert(card.name).second) << card.name;
    EXPECT_EQ(card.flops.count(DType::kFloat32), 1U) << card.name;
    EXPECT_GE(card.memory_bytes, 4_GiB) << card.name;
    EXPECT_GT(card.memory_bandwidth, 1e10) << card.name;
    EXPECT_GT(card.link_up, 1e9) << card.name;
    EXPECT_GT(card.link_down, 1e9) << card.name;
    EXPECT_GT(card.efficiency, 0.3) << card.name;
    EXPECT_LE(card.efficiency, 1.0) << card.name;
    EXPECT_FALSE(card.source.empty()) << card.name;
    for (const auto& [dtype, flops] : card.flops) EXPECT_GT(flops, 1e12) << card.name << " " << name_of(dtype);
  }
  EXPECT_GE(names.size(), 25U);
}

TEST(FindCard, ProductsOfEightBits_AreAFigureOfTheirOwn) {
  EXPECT_EQ(find_card("rtx3090")->fp8_flops, 0);
  const std::string file = yaml_file(
      "new: {flops: {fp8: 3e14, fp32: 82e12}, memory_bytes: 24e9, memory_bandwidth: 1e12, link_up: 1e9,\n"
      "      link_down: 1e9, efficiency: 0.5}\n");
  const auto card = find_card(file + "#new");
  ASSERT_TRUE(card.ok()) << card.status();
  EXPECT_EQ(card->flops.size(), 1U);
  EXPECT_EQ(card->speed(DType::kBfloat16), 41e12);
  EXPECT_EQ(card->speed(DType::kBfloat16, true), 150e12);
  EXPECT_EQ(find_card("rtx3090")->speed(DType::kBfloat16, true), find_card("rtx3090")->speed(DType::kBfloat16));
}

TEST(FindCard, PartOfAByte_IsOne) {
  const std::string file = yaml_file(
      "tiny: {flops: {bf16: 1e12}, memory_bytes: 1e-300, memory_bandwidth: 1e12, link_up: 1e9, link_down: 1e9}\n"
      "odd: {flops: {bf16: 1e12}, memory_bytes: 2.5, memory_bandwidth: 1e12, link_up: 1e9, link_down: 1e9}\n");
  EXPECT_EQ(find_card(file + "#tiny")->memory_bytes, 1U);
  EXPECT_EQ(find_card(file + "#odd")->memory_bytes, 3U);
}

TEST(DeviceProfile, SlowDown_LengthensEveryOpAndNoCopy) {
  const DeviceProfile card = *find_card("rtx4090");
  DeviceProfile slow = card;
  slow.slow_down(2);
  const OpCost arithmetic{1e12, 1e6};
  const OpCost memory{0, 1e9, 1e9};
  for (const bool fp8 : {false, true}) {
    EXPECT_DOUBLE_EQ(slow.seconds(arithmetic, DType::kBfloat16, fp8),
                     2 * card.seconds(arithmetic, DType::kBfloat16, fp8));
    EXPECT_DOUBLE_EQ(slow.seconds(memory, DType::kBfloat16, fp8), 2 * card.seconds(memory, DType::kBfloat16, fp8));
  }
  EXPECT_EQ(slow.link_up, card.link_up);
  EXPECT_EQ(slow.link_down, card.link_down);
}

TEST(FindCard, KnownName_HasTheVendorsFigures) {
  const auto card = find_card("rtx4090");
  ASSERT_TRUE(card.ok()) << card.status();
  EXPECT_EQ(card->flops.at(DType::kBfloat16), 165.2e12);
  EXPECT_EQ(card->fp8_flops, 330.4e12);
  EXPECT_EQ(card->memory_bytes, 24_GiB);
  EXPECT_FALSE(card->weights_in_place);
  EXPECT_TRUE(find_card("radeon-8060s")->weights_in_place);
}

TEST(FindCard, UnknownName_SuggestsTheNearest) {
  EXPECT_THAT(message(find_card("rtx409")),
              AllOf(HasSubstr("'rtx409'"), HasSubstr("rtx4090"), HasSubstr("file.yaml#name")));
}

TEST(Speed, MissingDtype_FallsBackToFp32) {
  const auto card = find_card("rtx2060");
  ASSERT_TRUE(card.ok());
  EXPECT_EQ(card->speed(DType::kBfloat16), card->flops.at(DType::kFloat32) * card->efficiency);
  EXPECT_EQ(card->speed(DType::kFloat16), card->flops.at(DType::kFloat16) * card->efficiency);
  EXPECT_EQ(DeviceProfile{}.speed(DType::kFloat32), 0.0);
}

TEST(FindCard, File_IsReadKeyByKey) {
  const auto card = find_card(yaml_file(kFast) + "#fast");
  ASSERT_TRUE(card.ok()) << card.status();
  EXPECT_EQ(card->name, "fast");
  EXPECT_EQ(card->flops.at(DType::kBfloat16), 165e12);
  EXPECT_EQ(card->memory_bytes, 24000000000U);
  EXPECT_EQ(card->link_down, 20e9);
  EXPECT_EQ(card->link_latency_seconds, 2e-5);
  EXPECT_EQ(card->jitter, 0.0);
  EXPECT_TRUE(card->weights_in_place);
  EXPECT_EQ(card->root, "a");
  EXPECT_EQ(card->fail_at, "error@compute:17");
}

TEST(FindCard, FileWithFaults_NamesFileEntryAndKey) {
  std::string text = kFast;
  EXPECT_THAT(message(find_card(yaml_file(text) + "#slow")),
              AllOf(HasSubstr(".yaml"), HasSubstr("'slow'"), HasSubstr("fast")));
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string copy = text;
    copy.replace(copy.find(from), from.size(), to);
    return message(find_card(yaml_file(copy) + "#fast"));
  };
  EXPECT_THAT(changed("memory_bandwidth", "memory_bandwith"),
              AllOf(HasSubstr("#fast"), HasSubstr("'memory_bandwith'"), HasSubstr("'memory_bandwidth'")));
  EXPECT_THAT(changed("link_up: 25e9,", ""), HasSubstr("'link_up' is missing"));
  EXPECT_THAT(changed("25e9", "quick"), AllOf(HasSubstr("'link_up'"), HasSubstr("'quick'")));
  EXPECT_THAT(changed("25e9", "-1"), HasSubstr("'link_up'"));
  EXPECT_THAT(changed("0.5", "1.5"), HasSubstr("'efficiency'"));
  EXPECT_THAT(changed("true", "1"), AllOf(HasSubstr("'weights_in_place'"), HasSubstr("true or false")));
  EXPECT_THAT(changed("bf16:", "bf17:"), HasSubstr("'bf17'"));
  EXPECT_THAT(changed("@compute", "@copy"), AllOf(HasSubstr("fail_at"), HasSubstr("compute, up or down")));
  EXPECT_THAT(changed("{flops", "[flops"), HasSubstr(".yaml:2: expected YAML"));
  EXPECT_THAT(changed("0.5", "1e-300"), AllOf(HasSubstr("'efficiency'"), HasSubstr("'1e-300'")));
  EXPECT_THAT(changed("1.65e+14", "1e-300"), AllOf(HasSubstr("'flops.bf16'"), HasSubstr("'1e-300'")));
  EXPECT_THAT(changed("25e9", "1e-300"), AllOf(HasSubstr("'link_up'"), HasSubstr("'1e-300'")));
  EXPECT_THAT(changed("jitter: 0", "jitter: 2"), HasSubstr("'jitter' must be a number from 0 up to 1, found '2'"));
  EXPECT_THAT(changed("jitter: 0", "link_up: 1"),
              AllOf(HasSubstr("#fast"), HasSubstr("'link_up'"), HasSubstr("twice")));
  EXPECT_THAT(changed("fp32:", "bf16:"), AllOf(HasSubstr("flops: 'bf16'"), HasSubstr("twice")));
  EXPECT_THAT(changed("fast:", "fast: {}\nfast:"), AllOf(HasSubstr("'fast'"), HasSubstr("lines 1 and 2")));
  EXPECT_THAT(changed("root: a", "root: \xff"), HasSubstr("UTF-8"));
  EXPECT_THAT(message(find_card(yaml_file(text + "---\nslow: {}\n") + "#fast")), HasSubstr("one YAML document"));
  EXPECT_THAT(message(find_card(yaml_file(text + "last: \"never closed\n") + "#fast")),
              AllOf(HasSubstr(".yaml:3"), HasSubstr("EOF")));
  EXPECT_THAT(message(find_card("/nowhere/cards.yaml#fast")), HasSubstr("/nowhere/cards.yaml"));
  EXPECT_THAT(message(find_card(yaml_file("- 1\n") + "#fast")), HasSubstr("map"));
}

TEST(ParseFailure, GoodTexts_AreUnderstood) {
  const auto error = parse_failure("error@compute:17");
  ASSERT_TRUE(error.ok());
  EXPECT_EQ(error->kind, FailurePlan::Kind::kError);
  EXPECT_EQ(error->queue, "compute");
  EXPECT_EQ(error->at_work, 17U);
  const auto hang = parse_failure("hang@2.5s");
  ASSERT_TRUE(hang.ok());
  EXPECT_EQ(hang->kind, FailurePlan::Kind::kHang);
  EXPECT_EQ(hang->queue, "");
  EXPECT_EQ(hang->at_seconds, 2.5);
  EXPECT_EQ(parse_failure("corrupt@down:5")->kind, FailurePlan::Kind::kCorrupt);
  EXPECT_EQ(parse_failure("")->kind, FailurePlan::Kind::kNone);
}

TEST(ParseFailure, BadTexts_AreRefusedWithTheGrammar) {
  for (const char* text :
       {"error", "error@", "error@compute", "error@compute:", "error@compute:0", "error@copy:3", "crash@up:1",
        "error@up:-1", "error@up:1x", "error@-1s", "error@nans", "hang@2.5", "@up:1"}) {
    EXPECT_THAT(message(parse_failure(text)), HasSubstr("error@compute:17")) << text;
  }
}

TEST(ParseSlowdown, GoodTexts_AreUnderstood) {
  const auto open = parse_slowdown("2.5x@compute:40");
  ASSERT_TRUE(open.ok());
  EXPECT_EQ(open->at(39), 1);
  EXPECT_EQ(open->at(40), 2.5);
  EXPECT_EQ(open->at(1000000), 2.5);
  const auto closed = parse_slowdown("2x@compute:40-90");
  ASSERT_TRUE(closed.ok());
  EXPECT_EQ(closed->at(90), 2);
  EXPECT_EQ(closed->at(91), 1);
  EXPECT_EQ(parse_slowdown("")->at(1), 1);
}

TEST(ParseSlowdown, BadTexts_AreRefusedWithTheGrammar) {
  for (const char* text :
       {"2", "2x", "2x@compute", "2x@compute:", "2x@compute:0", "2x@up:3", "0x@compute:1", "x@compute:1",
        "-2x@compute:1", "nanx@compute:1", "2x@compute:9-3", "2x@compute:1-", "2x@compute:-1", "2x@compute:1s"}) {
    EXPECT_THAT(message(parse_slowdown(text)), HasSubstr("2x@compute:40")) << text;
  }
}

TEST(LoadHostProfile, File_GivesTheSlowerOfTheTwoUpdateTimes) {
  const std::string file = yaml_file(
      "big: {memory_bytes: 256e9, memory_bandwidth: 280e9, optimizer_parameters_per_second: 2e9, disk_bandwidth: 3e9}\n"
      "bad: {memory_bytes: 256e9, memory_bandwidth: 280e9, optimizer_params: 2e9}\n");
  const auto host = load_host_profile(file + "#big");
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ(host->memory_bytes, 256000000000U);
  EXPECT_DOUBLE_EQ(host->update_seconds(1e9), 0.5);  // memory alone would take 0.1 s
  HostProfile wide = *host;
  wide.optimizer_parameters_per_second = 1e11;
  EXPECT_DOUBLE_EQ(wide.update_seconds(1e9), 0.1);
  EXPECT_THAT(message(load_host_profile(file + "#bad")), AllOf(HasSubstr("#bad"), HasSubstr("optimizer_params")));
  EXPECT_THAT(message(load_host_profile("laptop")), HasSubstr("file.yaml#name"));
}

}  // namespace
}  // namespace rondo::devices
