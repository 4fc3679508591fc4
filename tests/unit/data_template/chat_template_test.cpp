// Behaviour that needs no golden: messages of errors, repeated and concurrent use, time.
#include "rondo/data/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <thread>

#include "rondo/base/status.h"

namespace rondo::data {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::string parse_error(std::string_view source) {
  const auto parsed = ChatTemplate::parse(source);
  if (parsed.ok()) return "parsed";
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  return message_of(parsed.status());
}

std::string render_error(std::string_view source, const Json& context = Json::object()) {
  const auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return "did not parse: " + message_of(parsed.status());
  const auto rendered = parsed->render(context);
  if (rendered.ok()) return "rendered: " + *rendered;
  EXPECT_EQ(rendered.status().code(), absl::StatusCode::kInvalidArgument);
  return message_of(rendered.status());
}

TEST(ChatTemplate, SyntaxError_Parsed_NamesTheLine) {
  EXPECT_THAT(parse_error("a\nb\n{% if x %}\n{{ 1 + }}\n{% endif %}"), HasSubstr("line 4"));
  EXPECT_THAT(parse_error("\n\n{{ 'open }}"), HasSubstr("line 3"));
  EXPECT_THAT(parse_error("{% if x %}\n"), HasSubstr("endif"));
}

TEST(ChatTemplate, OutsideTheSubset_Parsed_IsRefusedByName) {
  EXPECT_THAT(parse_error("{% include 'x' %}"), HasSubstr("'include' is not supported"));
  EXPECT_THAT(parse_error("{% extends 'x' %}"), HasSubstr("'extends' is not supported"));
  EXPECT_THAT(parse_error("{% for x in y recursive %}{% endfor %}"), HasSubstr("recursive"));
  EXPECT_THAT(parse_error("\n{{ x|urlize }}"), HasSubstr("line 2: the filter 'urlize'"));
  EXPECT_THAT(parse_error("{{ x is nope }}"), HasSubstr("the test 'nope'"));
}

TEST(ChatTemplate, FailureWhileRendering_Reported_NamesLineAndCause) {
  EXPECT_THAT(render_error("a\n{{ b.c }}"), HasSubstr("line 2: 'b' is undefined"));
  EXPECT_THAT(render_error("{% if true %}\n\n{{ x.y.z }}{% endif %}", {{"x", Json::object()}}),
              HasSubstr("line 3: 'dict object' has no attribute 'y'"));
  EXPECT_THAT(render_error("{% macro m(a) %}\n{{ a + 1 }}{% endmacro %}\n{{ m('x') }}"),
              HasSubstr("line 2: '+' cannot take"));
  EXPECT_THAT(render_error("{{ raise_exception('roles must alternate') }}"), HasSubstr("roles must alternate"));
}

TEST(ChatTemplate, RaisedMessageWithLineEnds_Reported_IsOneLine) {
  EXPECT_EQ(render_error("{{ raise_exception('a\nb') }}").find('\n'), std::string::npos);
}

TEST(ChatTemplate, NumbersBeyond64Bits_Used_AreRefusedNotWrapped) {
  EXPECT_THAT(render_error("{{ 9223372036854775807 + 1 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(render_error("{{ 2 ** 64 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(render_error("{{ x }}", {{"x", 18446744073709551615U}}), HasSubstr("64 bits"));
  EXPECT_THAT(parse_error("{{ 9223372036854775808 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(render_error("{{ 9223372036854775807|round(-1) }}"), HasSubstr("64 bits"));
  EXPECT_THAT(render_error("{{ 1.5|round(-400, 'floor') }}"), HasSubstr("division by zero"));
  const auto least = ChatTemplate::parse(
      "{% set x = -9223372036854775807 - 1 %}{{ '%.3d' % x }} {{ x|round(-18) }} {{ 'a'.center(x) ~ 'b'.zfill(x) }} "
      "{{ 1.5|round(-400) }}");
  ASSERT_TRUE(least.ok()) << least.status();
  EXPECT_EQ(*least->render(Json::object()), "-9223372036854775808 -9000000000000000000 ab 0.0");
}

TEST(ChatTemplate, ContextThatIsNoObject_Rendered_IsRefused) {
  EXPECT_THAT(render_error("x", Json::array()), HasSubstr("must be an object"));
}

TEST(ChatTemplate, TextThatIsNotUtf8_Anywhere_IsRefused) {
  EXPECT_THAT(parse_error("a\xC3(b"), HasSubstr("not UTF-8"));
  EXPECT_THAT(parse_error("\xED\xA0\x80"), HasSubstr("not UTF-8"));
  EXPECT_THAT(parse_error("\xC0\x80"), HasSubstr("not UTF-8"));
  EXPECT_THAT(render_error("{{ x }}", {{"x", "\xF5\x80\x80\x80"}}), HasSubstr("not UTF-8"));
}

TEST(ChatTemplate, SameContext_RenderedTwice_GivesTheSameText) {
  const auto parsed = ChatTemplate::parse(
      "{% set ns = namespace(n=0) %}{% for m in messages|select %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}");
  ASSERT_TRUE(parsed.ok());
  const Json context = {{"messages", {1, 2, 3}}};
  EXPECT_EQ(*parsed->render(context), "3");
  EXPECT_EQ(*parsed->render(context), "3");
}

TEST(ChatTemplate, OneTemplate_RenderedByManyThreads_GivesEachItsOwnText) {
  const auto parsed = ChatTemplate::parse(
      "{% macro m(x) %}<{{ x|upper }}é>{% endmacro %}{% for i in range(50) %}{{ m(name) }}{% endfor %}");
  ASSERT_TRUE(parsed.ok());
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (std::size_t t = 0; t < texts.size(); ++t) {
    threads.emplace_back([&parsed, &texts, t] {
      texts[t] = *parsed->render({{"name", std::string(1, static_cast<char>('a' + t))}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 0; t < texts.size(); ++t) {
    std::string expected;
    for (int i = 0; i < 50; ++i) expected += "<" + std::string(1, static_cast<char>('A' + t)) + "é>";
    EXPECT_EQ(texts[t], expected);
  }
}

TEST(ChatTemplate, StrftimeNow_Rendered_GivesTheCurrentYear) {
  const auto parsed = ChatTemplate::parse("{{ strftime_now('%Y') }}|{{ strftime_now('') }}");
  ASSERT_TRUE(parsed.ok());
  const auto year = [] {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    return std::to_string(1900 + local.tm_year) + "|";
  };
  const std::string before = year();
  const std::string text = *parsed->render(Json::object());
  EXPECT_TRUE(text == before || text == year()) << text;
}

TEST(ChatTemplate, MacroKeptBeyondItsLoop_Called_SeesNothingOfTheLoop) {
  const auto parsed = ChatTemplate::parse(
      "{% set ns = namespace() %}{% for i in [1, 2] %}{% macro m() %}[{{ i }}]{% endmacro %}{% set ns.m = m %}{{ "
      "ns.m() }}{% endfor %}{{ ns.m() }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed->render(Json::object()), "[1][2][]");
}

}  // namespace
}  // namespace rondo::data
