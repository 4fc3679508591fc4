// The picture of a sweep: well-formed whatever the names, with a line for each pool that has points.
#include "rondo/apps/sweep_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "well_formed.h"

namespace rondo::apps {
namespace {

using testing::HasSubstr;
using testing::Not;

std::size_t count_of(const std::string& text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(SweepSvg, PoolsWithAndWithoutPoints_OneLineEachThatFits) {
  const std::string svg =
      sweep_svg("m<1>, lora & co", {{"cpu", {{1, 10.0}, {4, 39.0}, {16, 40.0}}, 4}, {"emulated:\"tiny\"", {}, 0}});
  EXPECT_EQ(test::xml_fault(svg), "");
  EXPECT_EQ(count_of(svg, "<polyline "), 1U);
  EXPECT_EQ(count_of(svg, "<circle "), 3U);
  EXPECT_THAT(svg, HasSubstr("m&lt;1&gt;, lora &amp; co"));
  EXPECT_THAT(svg, HasSubstr("cpu (95% of its best from 4 on)"));
  EXPECT_THAT(svg, HasSubstr("emulated:&quot;tiny&quot; (does not fit)"));
}

TEST(SweepSvg, NothingFits_HasNoAxes) {
  const std::string svg = sweep_svg("m", {{"cpu", {}, 0}});
  EXPECT_EQ(test::xml_fault(svg), "");
  EXPECT_THAT(svg, Not(HasSubstr("tokens/s</text>")));
}

}  // namespace
}  // namespace rondo::apps
