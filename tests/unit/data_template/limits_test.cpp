// A template comes with a model and is not trusted: whatever it does ends, within its limits, with a message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rondo/data/chat_template.h"

namespace rondo::data {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::string outcome(std::string_view source, TemplateLimits limits = {}, const Json& context = Json::object()) {
  const auto parsed = ChatTemplate::parse(source, limits);
  if (!parsed.ok()) return std::string(parsed.status().message());
  const auto rendered = parsed->render(context);
  return rendered.ok() ? "rendered" : std::string(rendered.status().message());
}

std::string repeated(std::string_view text, std::size_t count) {
  std::string result;
  for (std::size_t i = 0; i < count; ++i) result += text;
  return result;
}

TEST(TemplateLimits, EndlessWork_Rendered_StopsAtTheStepLimit) {
  EXPECT_THAT(outcome("{% for a in range(100000) %}{% for b in range(100000) %}{{ b }}{% endfor %}{% endfor %}"),
              HasSubstr("steps"));
  EXPECT_THAT(outcome("{{ ('a' * 60000000)|title }}"), HasSubstr("steps"));
  EXPECT_THAT(outcome("{% for a in range(1000) %}x{% endfor %}", {.steps = 500}), HasSubstr("500 steps"));
  EXPECT_EQ(outcome("{% for a in range(1000) %}x{% endfor %}", {.steps = 50'000}), "rendered");
}

TEST(TemplateLimits, TooMuchText_Written_StopsAtTheOutputLimit) {
  EXPECT_THAT(outcome("{% for a in range(100) %}0123456789{% endfor %}", {.output_bytes = 999}),
              HasSubstr("999 bytes"));
  EXPECT_EQ(outcome("{% for a in range(100) %}0123456789{% endfor %}", {.output_bytes = 1000}), "rendered");
}

TEST(TemplateLimits, OneHugeValue_Made_IsRefusedBeforeItIsMade) {
  const std::vector<std::string> sources = {
      "{{ 'x' * 9000000000000000000 }}",
      "{{ [1] * 9000000000000000000 }}",
      "{{ 'x' * 100000000 }}",
      "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson "
      "}}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
      "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, "
      "ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
      "{{ ('a' * 1000000)|replace('a', 'b' * 1000000) }}",
      "{{ ('a' * 1000000)|replace('', 'b' * 1000000) }}",
      "{{ (['b' * 1000000] * 1000)|join('') }}",
      "{{ ('\\n' * 1000000)|indent(1000000) }}",
      "{{ 'x'.center(90000000000) }}",
      "{{ '%999999999d' % 1 }}",
      "{{ '{:999999999}'.format(1) }}",
  };
  for (const std::string& source : sources) {
    EXPECT_NE(outcome(source, {.output_bytes = 1U << 20U}), "rendered") << source;
  }
}

TEST(TemplateLimits, SlowSearches_Rendered_TakeLinearTime) {
  const std::string texts = "{% set hay = 'a' * 3000000 %}{% set needle = 'a' * 1000000 ~ 'b' %}";
  for (const std::string_view use :
       {"needle in hay", "hay.find(needle)", "hay.rfind('b' ~ needle)", "hay.split(needle)|length",
        "hay.rsplit('b' ~ hay[:9000])|length", "hay.count(needle)", "hay.replace(needle, 'x')|length",
        "hay.strip(needle)|length"}) {
    EXPECT_EQ(outcome(texts + "{{ " + std::string(use) + " }}"), "rendered") << use;
  }
}

TEST(TemplateLimits, DictOfManyNumbers_LookedUpOften_StopsAtTheStepLimit) {
  EXPECT_THAT(
      outcome(
          "{% set ns = namespace(d={}) %}{% for i in range(20000) %}{% set ns.p = ((ns.p or []) + [(i, i)])[-5000:] %}"
          "{% set ns.d = dict(ns.p) %}{{ i in ns.d }}{% endfor %}"),
      HasSubstr("steps"));
}

TEST(TemplateLimits, DeepNesting_Parsed_IsRefused) {
  for (const std::size_t depth : {std::size_t{200}, std::size_t{100'000}}) {
    EXPECT_THAT(outcome("{{ " + repeated("(", depth) + "1" + repeated(")", depth) + " }}"), HasSubstr("nests"));
    EXPECT_THAT(outcome("{{ " + repeated("[", depth) + repeated("]", depth) + " }}"), HasSubstr("nests"));
    EXPECT_THAT(outcome("{{ " + repeated("not ", depth) + "1 }}"), HasSubstr("nests"));
    EXPECT_THAT(outcome("{{ " + repeated("- ", depth) + "1 }}"), HasSubstr("nests"));
    EXPECT_THAT(outcome("{{ " + repeated("1 if 1 else ", depth) + "1 }}"), HasSubstr("nests"));
    EXPECT_THAT(outcome(repeated("{% if 1 %}", depth) + repeated("{% endif %}", depth)), HasSubstr("nests"));
    EXPECT_THAT(outcome(repeated("{% for a in [1] %}", depth)), HasSubstr("nests"));
    EXPECT_THAT(outcome("{% set " + repeated("(", depth) + "a" + repeated(")", depth) + " = 1 %}"), HasSubstr("nests"));
    EXPECT_THAT(outcome("{{ a" + repeated("[a", depth) + repeated("]", depth) + " }}"), HasSubstr("nests"));
    EXPECT_THAT(outcome("{{ a" + repeated("(a", depth) + repeated(")", depth) + " }}"), HasSubstr("nests"));
  }
  EXPECT_THAT(outcome("{{ a" + repeated(".a", 100'000) + " }}"), HasSubstr("too long a chain"));
  EXPECT_THAT(outcome("{{ a" + repeated("|upper", 100'000) + " }}"), HasSubstr("too long a chain"));
  EXPECT_THAT(outcome("{{ 1" + repeated(" if 1", 100'000) + " }}"), HasSubstr("too long a chain"));
}

TEST(TemplateLimits, LongButFlat_Rendered_IsFine) {
  EXPECT_EQ(outcome("{{ 1" + repeated(" + 1", 5000) + " }}"), "rendered");
  EXPECT_EQ(outcome("{{ 'a'" + repeated(" ~ 'a'", 5000) + " }}"), "rendered");
  EXPECT_EQ(outcome("{{ 0" + repeated(" or 0", 5000) + " }}"), "rendered");
  EXPECT_EQ(outcome("{% if 0 %}" + repeated("{% elif 0 %}", 2000) + "{% endif %}"), "rendered");
  EXPECT_EQ(outcome("{{ " + repeated("(", 90) + "1" + repeated(")", 90) + " }}"), "rendered");
}

TEST(TemplateLimits, EndlessRecursion_Rendered_StopsAtTheDepthLimit) {
  EXPECT_THAT(outcome("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("limit of 100"));
  EXPECT_THAT(outcome("{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}"),
              HasSubstr("limit of 100"));
  EXPECT_THAT(outcome("{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}"),
              HasSubstr("rendered"));
}

TEST(TemplateLimits, ValueThatHoldsItself_Used_EndsWithAMessage) {
  const std::string loop = "{% set ns = namespace() %}{% set ns.a = [ns] %}";
  EXPECT_THAT(outcome(loop + "{{ ns }}"), HasSubstr("nests"));
  EXPECT_THAT(outcome(loop + "{{ ns.a|tojson }}"), HasSubstr("JSON"));
  const std::string deep =
      "{% set ns = namespace(a=[]) %}{% for i in range(5000) %}{% set ns.a = [ns.a] %}{% endfor %}";
  EXPECT_THAT(outcome(deep + "{{ ns.a }}"), HasSubstr("nests"));
  EXPECT_THAT(outcome(deep + "{{ ns.a|tojson }}"), HasSubstr("nests"));
  EXPECT_THAT(outcome(deep + "{{ ns.a == [[]] }}"), HasSubstr("rendered"));
}

TEST(TemplateLimits, DeepContext_Rendered_IsRefused) {
  Json context = Json::object();
  for (int i = 0; i < 2000; ++i) context = Json::object({{"x", std::move(context)}});
  EXPECT_THAT(outcome("x", {}, context), HasSubstr("nests"));
}

TEST(TemplateLimits, EveryPrefixAndEdit_OfATemplate_NeverCrashes) {
  const std::string source =
      "{%- macro m(a, b=[1, 2][0]) -%}{{ a|default('x', true) ~ b }}{%- endmacro -%}{# c #}{% raw %}{{ }}{% endraw %}\n"
      "{% for k, v in {'é': \"1\\n\", 2: (3,)}.items() if k is not none recursive_ %}{{ loop.index + 1 }}{% else %}-{% "
      "endfor %}"
      "{% set ns = namespace(a=1) %}{% set ns.a, q = 1.5e3, 'x'[::-1] %}{% call(x) m(*[1], **{'b': 2}) %}{{ x }}{% "
      "endcall %}"
      "{% filter upper|trim %}a{% endfilter %}{% if a in b and not c or 1 < 2 <= 3 %}{% elif x %}{% endif %}{{ "
      "a.b[1:2]['c'](d)|e }}";
  std::size_t parsed = 0;
  const std::string_view letters = "{}%#-'\"()[]|.,:~=+* \n\\eé0";
  for (std::size_t i = 0; i <= source.size(); ++i) {
    parsed += outcome(source.substr(0, i)) == "rendered" ? 1U : 0U;
    for (std::size_t j = i % 3; j < letters.size(); j += 3) {
      std::string edited = source;
      edited.insert(i, 1, letters[j]);
      parsed += outcome(edited) == "rendered" ? 1U : 0U;
      if (i < source.size()) edited.erase(i + 1, 1);
      parsed += outcome(edited) == "rendered" ? 1U : 0U;
    }
  }
  EXPECT_GT(parsed, 0U);
}

}  // namespace
}  // namespace rondo::data
