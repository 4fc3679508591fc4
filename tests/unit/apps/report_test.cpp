// The page of a report: well-formed, escaped, with a curve for every measurement, fetching nothing.
#include "rondo/apps/report.h"

#include <gmock/gmock.h>

#include <cmath>

#include "rondo/apps/plot.h"
#include "well_formed.h"

namespace rondo::apps {
namespace {

using testing::HasSubstr;
using testing::Not;
using train::RunHistory;
using train::TrainPoint;

RunHistory some_run(const std::string& name, std::uint64_t steps, double loss) {
  RunHistory run;
  run.folder = "/runs/" + name;
  run.status = "done";
  for (std::uint64_t step = 1; step <= steps; ++step) {
    TrainPoint point;
    point.step = step;
    point.loss = loss / static_cast<double>(step);
    point.learning_rate = 1e-4;
    point.grad_norm = 1.0;
    point.tokens = 100;
    point.tokens_per_second = 50;
    point.step_seconds = 2;
    point.elapsed_seconds = 2.0 * static_cast<double>(step);
    point.sol = 0.4;
    point.bubble = 0.1;
    point.memory = {{"cpu:0", 1e9}, {"host", 2e9}};
    run.train.push_back(point);
  }
  run.evaluations = {{steps, loss / 2}};
  run.settings = {{"learning_rate", "0.0001"}, {"seed", "42"}};
  return run;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

/// Every <svg>...</svg> of a page.
std::vector<std::string> pictures(const std::string& page) {
  std::vector<std::string> found;
  for (std::size_t at = page.find("<svg"); at != std::string::npos; at = page.find("<svg", at + 1)) {
    found.push_back(page.substr(at, page.find("</svg>", at) + 6 - at));
  }
  return found;
}

TEST(Report, OneRun_HasACurveForEveryMeasurement) {
  const std::string page = report_page({some_run("a", 40, 3.0)}, "");
  EXPECT_EQ(test::xml_fault(page), "");
  const auto plots = pictures(page);
  EXPECT_EQ(plots.size(), 7U);
  for (const std::string& plot : plots) {
    EXPECT_EQ(test::xml_fault(plot), "");
    EXPECT_THAT(plot, HasSubstr("<polyline"));
  }
  for (const char* title :
       {"Loss", "Learning rate", "Gradient norm", "Tokens a second", "SOL", "Bubble", "Memory", "eval", "smoothed"}) {
    EXPECT_THAT(page, HasSubstr(title));
  }
  EXPECT_THAT(page, HasSubstr("<th>learning_rate</th><td class=\"n\">0.0001</td>"));
}

TEST(Report, Page_FetchesNothingAndRunsNothing) {
  const std::string page = report_page({some_run("a", 4, 3.0), some_run("b", 4, 2.0)}, "");
  for (const char* part : {"http", "src=", "href=", "url(", "@import", "<script", "<link", "<iframe", "<object"}) {
    EXPECT_THAT(page, Not(HasSubstr(part)));
  }
  for (const char* part : {"prefers-color-scheme:dark", "name=\"viewport\"", "charset=\"utf-8\""}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
}

TEST(Report, WhatComesFromOutside_IsEscapedEverywhere) {
  const std::string evil = "\"><script>alert('&')</script>\x01\xff";
  RunHistory run = some_run("a", 3, 1.0);
  run.folder = "/runs/" + evil;
  run.status = evil;
  run.ignored_lines = 1;
  run.settings = {{evil, evil}, {"model_name_or_path", evil}};
  for (TrainPoint& point : run.train) point.memory = {{evil, 5.0}};
  const std::string trace = R"({"traceEvents":[{"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"<b>"}},
    {"ph":"X","name":"<i>'\"","pid":0,"tid":0,"ts":0,"dur":5,"args":{"step":1}}]})";
  const auto timeline = timeline_figure(trace, "t");
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  const std::string page = report_page({run, run}, *timeline);
  EXPECT_EQ(test::xml_fault(page), "");
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<b>")));
  EXPECT_THAT(page, Not(HasSubstr("<i>")));
  EXPECT_THAT(page, HasSubstr("&quot;&gt;&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;\xEF\xBF\xBD\xEF\xBF\xBD"));
}

TEST(Report, TwoRuns_AreOverlaidAndTheirDifferencesStandSideBySide) {
  RunHistory other = some_run("b", 20, 2.0);
  other.settings = {{"learning_rate", "0.5"}, {"seed", "42"}, {"extra", "x"}};
  const std::string page = report_page({some_run("a", 40, 3.0), other}, "");
  EXPECT_EQ(test::xml_fault(page), "");
  for (const std::string& plot : pictures(page)) EXPECT_GE(count(plot, "<polyline"), 2U);
  const std::size_t begin = page.find("id=\"differing\"");
  ASSERT_NE(begin, std::string::npos);
  const std::string differing = page.substr(begin, page.find("</table>", begin) - begin);
  EXPECT_THAT(differing, HasSubstr("<th>learning_rate</th><td class=\"n\">0.0001</td><td class=\"n\">0.5</td>"));
  EXPECT_THAT(differing, HasSubstr("<th>extra</th><td class=\"n\"></td><td class=\"n\">x</td>"));
  EXPECT_THAT(differing, Not(HasSubstr("seed")));
}

TEST(Report, RunThatHasJustBegun_IsAPageToo) {
  RunHistory empty;
  empty.folder = "out";
  EXPECT_EQ(test::xml_fault(report_page({empty}, "")), "");
  EXPECT_TRUE(pictures(report_page({empty}, "")).empty());
  const std::string page = report_page({some_run("a", 1, 3.0)}, "");
  EXPECT_EQ(test::xml_fault(page), "");
  for (const std::string& plot : pictures(page)) EXPECT_THAT(plot, HasSubstr("<circle"));
}

TEST(Report, LongRun_StaysASmallPage) { EXPECT_LT(report_page({some_run("a", 100000, 3.0)}, "").size(), 400000U); }

TEST(Timeline, StepInTheMiddle_ShowsEveryQueue) {
  std::string events;
  for (int step = 1; step <= 3; ++step) {
    for (int device = 0; device < 2; ++device) {
      events += R"({"ph":"X","name":"forward","pid":)" + std::to_string(device) + R"(,"tid":0,"ts":)" +
                std::to_string(1000 * step) + R"(,"dur":400,"args":{"step":)" + std::to_string(step) + "}},";
      events += R"({"ph":"X","name":"weights","pid":)" + std::to_string(device) + R"(,"tid":1,"ts":)" +
                std::to_string(1000 * step + 300) + R"(,"dur":500,"args":{"step":)" + std::to_string(step) + "}},";
    }
  }
  const auto figure = timeline_figure("{\"traceEvents\":[" + events + "{}]}", "t");
  ASSERT_TRUE(figure.ok()) << figure.status();
  EXPECT_EQ(test::xml_fault(*figure), "");
  EXPECT_THAT(*figure, HasSubstr("Step 2 of the trace"));
  EXPECT_EQ(count(*figure, "<rect"), 4U);
}

TEST(Timeline, WhatIsNoTrace_IsNamed) {
  for (const char* text : {"", "[]", "{}", "{\"traceEvents\":3}", "{\"traceEvents\":[1,{\"ph\":\"X\"}]}"}) {
    const auto figure = timeline_figure(text, "t.json");
    EXPECT_EQ(figure.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(figure.status().message()), HasSubstr("t.json"));
  }
}

TEST(AxisMarks, AreRoundAndInside) {
  for (const auto& [low, high] : {std::pair(0.0, 1.0), {0.0, 3.0}, {-2.5, 9.0}, {1e-5, 1.1e-5}, {3.0, 4e9}}) {
    const auto marks = axis_marks(low, high);
    EXPECT_GE(marks.size(), 3U) << low;
    EXPECT_LE(marks.size(), 8U) << low;
    for (const double mark : marks) EXPECT_TRUE(mark >= low && mark <= high) << mark;
  }
  EXPECT_EQ(axis_marks(0, 3), (std::vector<double>{0, 0.5, 1, 1.5, 2, 2.5, 3}));
  EXPECT_LE(axis_marks(1e16, 1e16 + 4).size(), 8U);  // where adding one changes nothing
}

TEST(Thinned, KeepsTheExtremesOfEveryStretch) {
  std::vector<std::pair<double, double>> points;
  for (int i = 0; i < 10000; ++i) points.emplace_back(i, i == 7777 ? 99.0 : std::sin(i));
  const auto kept = thinned(points, 100);
  EXPECT_LE(kept.size(), 100U);
  EXPECT_THAT(kept, testing::Contains(std::pair(7777.0, 99.0)));
  EXPECT_TRUE(std::ranges::is_sorted(kept));
  EXPECT_EQ(thinned(kept, 100), kept);
}

TEST(Smoothed, Constant_StaysAndOthersLag) {
  const auto constant = smoothed({{1, 2.0}, {2, 2.0}, {3, NAN}, {4, 2.0}}, 10);
  ASSERT_EQ(constant.size(), 3U);
  for (const auto& point : constant) EXPECT_NEAR(point.second, 2.0, 1e-12);
  const auto step = smoothed({{1, 0.0}, {2, 0.0}, {3, 1.0}}, 3);
  EXPECT_NEAR(step.back().second, 1.0 / 1.75, 1e-12);  // weights 1/4, 1/2, 1
}

TEST(Escaped, WhatIsNoText_BecomesAReplacement) {
  EXPECT_EQ(escaped("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(escaped("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  for (const char* bad : {"\xc3", "\xff", "\x1b", "\xc0", "\x7f"}) EXPECT_EQ(escaped(bad), "\xEF\xBF\xBD") << bad;
  EXPECT_EQ(escaped("\xed\xa0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // half of a pair
}

}  // namespace
}  // namespace rondo::apps
