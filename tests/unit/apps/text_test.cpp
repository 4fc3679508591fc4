// Numbers and lines for people.
#include "rondo/apps/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "rondo/apps/describe.h"

namespace rondo::apps {
namespace {

using testing::HasSubstr;

train::StepReport some_report() {
  train::StepReport report;
  report.step = 12;
  report.total_steps = 300;
  report.loss = 2.31049;
  report.learning_rate = 2e-4;
  report.grad_norm = 0.913;
  report.tokens_per_second = 1930.4;
  report.sol = 0.412;
  report.step_seconds = 10.61;
  report.remaining_seconds = 3055;
  report.memory = {{"cpu:0", 3U << 29U}, {"host", 1U << 20U}};
  return report;
}

TEST(ProgressLine, Wide_ShowsEverything) {
  const std::string line = progress_line(some_report(), 0);
  for (const char* part : {"step 12/300", "4%", "loss 2.3105", "lr 2.00e-04", "grad 0.9130", "1.9 k tok/s", "SOL 41%",
                           "10.6 s/step", "50 min 55 s left", "cpu:0 1.50 GiB", "host 1.00 MiB"}) {
    EXPECT_THAT(line, HasSubstr(part));
  }
}

TEST(ProgressLine, EightyColumns_ShowEverythingButMemory) {
  EXPECT_EQ(progress_line(some_report(), 79),
            "12/300 4% loss 2.31 lr 2.0e-4 grad 0.913 1.9k tok/s SOL 41% 11s/step 51m left");
}

TEST(ProgressLine, AnyWidth_IsKeptByLeavingOutTheEnd) {
  const std::string whole = progress_line(some_report(), 0);
  const std::string abbreviated = progress_line(some_report(), whole.size() - 1);
  EXPECT_THAT(abbreviated, HasSubstr("host 1.0MB"));
  for (std::size_t width = 1; width < whole.size(); ++width) {
    const std::string line = progress_line(some_report(), width);
    EXPECT_LE(line.size(), width);
    EXPECT_TRUE(abbreviated.starts_with(line)) << line;
  }
  EXPECT_EQ(progress_line(some_report(), whole.size()), whole);
}

TEST(ProgressLine, NumbersThatAreNone_AreShownAsUnknown) {
  train::StepReport report = some_report();
  report.loss = std::numeric_limits<double>::quiet_NaN();
  report.remaining_seconds = std::numeric_limits<double>::infinity();
  EXPECT_THAT(progress_line(report, 0), testing::AllOf(HasSubstr("loss ?"), HasSubstr("? left")));
}

TEST(ProgressLine, StepWithoutArithmetic_HasNeitherLossNorNorm) {
  train::StepReport report = some_report();
  report.loss.reset();
  report.grad_norm.reset();
  for (const std::size_t width : {0U, 79U}) {
    EXPECT_THAT(progress_line(report, width),
                testing::AllOf(testing::Not(HasSubstr("loss")), testing::Not(HasSubstr("grad")), HasSubstr("tok/s")));
  }
}

TEST(Duration, EveryScale_HasItsUnits) {
  EXPECT_EQ(format_duration(0.0421), "0.0421 s");
  EXPECT_EQ(format_duration(10.61), "10.6 s");
  EXPECT_EQ(format_duration(59.97), "1 min 00 s");
  EXPECT_EQ(format_duration(750), "12 min 30 s");
  EXPECT_EQ(format_duration(3 * 3600 + 5 * 60), "3 h 05 min");
  EXPECT_EQ(format_duration(2 * 86400 + 3 * 3600), "2 d 03 h");
  EXPECT_EQ(format_duration(-1), "?");
}

TEST(Count, EveryScale_HasItsPrefix) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(999.96), "1.0 k");
  EXPECT_EQ(format_count(134.5e6), "134.5 M");
}

TEST(OneLine, LineBreaksAndControls_AreTaken) {
  EXPECT_EQ(one_line("a\nb\r\n\tc\x1b[2J\n"), "a b c\\x1b[2J");
  EXPECT_EQ(one_line("\n\n"), "");
}

TEST(OneLine, BytesThatAreNoUtf8_AreSpelt) {
  EXPECT_EQ(one_line("gr\xC3\xBC\xDF: '\xFF'"), "gr\xC3\xBC\\xdf: '\\xff'");
}

TEST(StripEscapes, Sequences_Vanish) {
  EXPECT_EQ(strip_escapes("\x1b[32mgreen\x1b[0m\r\x1b[K."), "green\r.");
  EXPECT_EQ(strip_escapes("\x1b[3"), "");
  EXPECT_EQ(strip_escapes("end\x1b"), "end\x1b");
}

TEST(Table, Columns_AreAligned) {
  EXPECT_EQ(format_table({{"", "peak"}, {"cpu:0", "1"}, {"x"}}), "         peak\n  cpu:0     1\n  x\n");
}

TEST(Labelled, FurtherLines_StandBelowTheFirst) {
  EXPECT_EQ(labelled("note", "a\nb"), "note       a\n           b\n");
  EXPECT_EQ(labelled("note", ""), "note       \n");
}

}  // namespace
}  // namespace rondo::apps
