// Turns that call tools under templates without a generation prompt: all of the call is learned and nothing before it.
#include <gtest/gtest.h>

#include "rondo/base/file.h"
#include "test_support.h"

namespace rondo::data {
namespace {

using testing_support::Model;
using testing_support::model_with_template;
using testing_support::targets_of_record;

std::string call_of(const std::string& function, const std::string& arguments) {
  return R"({"id":"abcdefghi","type":"function","function":{"name":")" + function + R"(","arguments":)" + arguments +
         "}}";
}

std::string message(const std::string& role, const std::string& content, const std::string& calls = "") {
  const std::string more = calls.empty() ? "" : R"(,"tool_calls":[)" + calls + "]";
  const std::string id = role == "tool" ? R"(,"tool_call_id":"abcdefghi")" : "";
  return R"({"role":")" + role + R"(","content":")" + content + '"' + more + id + "}";
}

std::string record(const std::vector<std::string>& messages, const std::string& more = "") {
  std::string joined;
  for (const std::string& one : messages) joined += (joined.empty() ? "" : ",") + one;
  return R"({"messages":[)" + joined + "]" + more + "}";
}

const std::string kWeather = call_of("get_weather", R"({"city":"Paris"})");
/// A question, a call, its result, an answer.
const std::string kOneCall = record({message("user", "weather?"), message("assistant", "", kWeather),
                                     message("tool", "sunny"), message("assistant", "It is sunny.")});

/// Calls as `calls` writes them, the rest as Mistral's templates do.
std::string brackets(const std::string& calls) {
  return R"({%- for m in messages -%}
{%- if m.role == 'user' -%}{{ '[INST] ' + m.content + '[/INST]' }}
{%- elif m.role == 'tool' -%}{{ '[TOOL_RESULTS]' + m.content + '[/TOOL_RESULTS]' }}
{%- elif m.tool_calls -%})" +
         calls + R"({{ eos_token }}
{%- else -%}{{ ' ' + m.content + eos_token }}{%- endif -%}
{%- endfor -%})";
}

TEST(MaskCalls, ListOfCalls_IsTargetFromItsMark) {
  const Model model = model_with_template(
      "words", brackets("{{ '[TOOL_CALLS] [' }}{%- for c in m.tool_calls -%}{{ c.function | tojson }}{%- endfor -%}"
                        "{{ ']' }}"));
  EXPECT_EQ(targets_of_record(model, kOneCall),
            R"([TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}]</s>| It is sunny.</s>)");
}

TEST(MaskCalls, NameBeforeArguments_IsTarget) {
  const Model model = model_with_template(
      "words", brackets("{{ m.content }}{%- for c in m.tool_calls -%}{{ '[TOOL_CALLS]' + c.function.name + '[ARGS]' + "
                        "(c.function.arguments | tojson) }}{%- endfor -%}"));
  EXPECT_EQ(targets_of_record(model, kOneCall),
            R"([TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}</s>| It is sunny.</s>)");
  const std::string two = kWeather + "," + call_of("f", "{}");
  EXPECT_EQ(targets_of_record(model, record({message("user", "q"), message("assistant", "", two)})),
            R"([TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]f[ARGS]{}</s>)");
  EXPECT_EQ(targets_of_record(model, record({message("user", "q"), message("assistant", "Let me see.", kWeather)})),
            R"(Let me see.[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}</s>)");
}

TEST(MaskCalls, ListOfToolsThatMoves_TurnsAreFound) {
  // The tools stand before the last question, the system prompt inside it while it is the last message.
  const auto source = read_file(std::filesystem::path(RONDO_TEST_DATA) / "template/templates/mistral_v3_tools.jinja");
  ASSERT_TRUE(source.ok()) << source.status();
  const Model model = model_with_template("words", *source);
  const std::string tools =
      R"(,"tools":[{"type":"function","function":{"name":"get_weather","description":"d","parameters":{}}}])";
  const std::string call =
      R"([TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "abcdefghi"}]</s>)";
  const std::vector<std::string> round = {message("user", "weather?"), message("assistant", "", kWeather),
                                          message("tool", "1"), message("assistant", "one")};
  EXPECT_EQ(targets_of_record(model, record(round, tools)), call + "| one</s>");
  std::vector<std::string> rounds = {message("system", "s")};
  for (int i = 0; i < 3; ++i) rounds.insert(rounds.end(), round.begin(), round.end());
  rounds[6] = message("assistant", "A word with it.", kWeather);  // which this template leaves out
  EXPECT_EQ(targets_of_record(model, record(rounds, tools)),
            call + "| one</s>|" + call + "| one</s>|" + call + "| one</s>");
}

TEST(MaskCalls, HeaderThatIsNoPrompt_IsNoTarget) {
  const Model model = model_with_template("promptless", R"(
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\n' }}
{%- for c in m.tool_calls or [] -%}{{ '<tool_call>' + (c.function | tojson) + '</tool_call>' }}{%- endfor -%}
{{ m.content + '<|im_end|>\n' }}
{%- endfor -%})");
  EXPECT_EQ(targets_of_record(model, kOneCall),
            R"(<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call><|im_end|>)"
            "|It is sunny.<|im_end|>");
}

TEST(MaskCalls, HeaderThatNamesTheFunction_IsTargetFromTheName) {
  // What both kinds of turn begin with is the header; the rest the model has to write.
  const Model model = model_with_template("headers", R"(
{%- for m in messages -%}
{%- if m.tool_calls -%}
{{ '<|header|>assistant<|call|>' + m.tool_calls[0].function.name + '<|end_header|>' }}
{{- (m.tool_calls[0].function.arguments | tojson) + '<|eot|>' }}
{%- else -%}{{ '<|header|>' + m.role + '<|end_header|>' + m.content + '<|eot|>' }}{%- endif -%}
{%- endfor -%})");
  EXPECT_EQ(targets_of_record(model, kOneCall),
            R"(<|call|>get_weather<|end_header|>{"city": "Paris"}<|eot|>|It is sunny.<|eot|>)");
}

TEST(MaskCalls, CallThatHasItsIdOnceItHasAResult_IsLearnedThroughItsEnd) {
  const Model model = model_with_template("headers", R"(
{%- for m in messages -%}
{{ '<|header|>' + m.role + '<|end_header|>' + m.content }}
{%- if m.tool_calls -%}{{ '[' + (m.tool_calls[0].function.arguments | tojson) }}
{%- if not loop.last -%}{{ ', ' + m.tool_calls[0].id }}{%- endif -%}{{ ']' }}{%- endif -%}
{{ '<|eot|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|header|>assistant<|end_header|>' }}{%- endif -%})");
  EXPECT_EQ(targets_of_record(model, kOneCall), R"([{"city": "Paris"}, abcdefghi]<|eot|>|It is sunny.<|eot|>)");
}

TEST(MaskCalls, WordsBehindTheResult_AreLearnedThroughTheirEnd) {
  // As Gemma 4's template: results stand in the turn that has called, before its words.
  const Model model = model_with_template("headers", R"(
{%- for m in messages if m.role != 'tool' -%}
{{ '<|header|>' + m.role + '<|end_header|>' }}
{%- if m.tool_calls -%}{{ '<|call|>' + m.tool_calls[0].function.name + '<|eom|>' }}
{%- for t in messages if t.role == 'tool' -%}{{ t.content }}{%- endfor -%}{%- endif -%}
{{ m.content }}
{%- if m.tool_calls and loop.last -%}{{ '<|call|>' }}{%- else -%}{{ '<|eot|>' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|header|>assistant<|end_header|>' }}{%- endif -%})");
  EXPECT_EQ(targets_of_record(model, record({message("user", "q"), message("assistant", "Let me see.", kWeather),
                                             message("tool", "1"), message("assistant", "one")})),
            "<|call|>get_weather<|eom|>1Let me see.<|eot|>|one<|eot|>");
}

TEST(MaskCalls, ReasoningBeforeACall_IsTarget) {
  const Model model = model_with_template(
      "words", brackets("{{ '<think>\\n' + m.reasoning_content + '\\n</think>\\n' }}"
                        "{%- for c in m.tool_calls -%}{{ '[TOOL_CALLS]' + (c.function | tojson) }}{%- endfor -%}"));
  const std::string turn =
      R"({"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[)" + kWeather + R"(]})";
  EXPECT_EQ(targets_of_record(model, record({message("user", "weather?"), turn})),
            "<think>\nhm\n</think>\n"
            R"([TOOL_CALLS]{"name": "get_weather", "arguments": {"city": "Paris"}}</s>)");
}

TEST(MaskCalls, EarlierTurnsThatReason_KeepTheirMasks) {
  // No two renderings begin alike, so that nothing tells the turns apart but what stands right before them.
  const Model model = model_with_template("promptless", R"(
{{- messages | length }}
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\n' + m.content }}
{%- for c in m.tool_calls or [] -%}{{ '<tool_call>' + (c.function | tojson) + '</tool_call>' }}{%- endfor -%}
{{ '<|im_end|>\n' }}
{%- endfor -%})");
  EXPECT_EQ(
      targets_of_record(model, record({message("user", "q"), message("assistant", "<think>a</think>b"),
                                       message("user", "<think>c</think>"), message("assistant", "", kWeather),
                                       message("tool", "t"), message("assistant", "d")})),
      R"(<think>a</think>b<|im_end|>|<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>)"
      "<|im_end|>|d<|im_end|>");
}

TEST(MaskCalls, PromptThatCallsAreWrittenWithout_TheWholeCallIsTarget) {
  const Model model = model_with_template("headers", R"(
{%- for m in messages -%}
{%- if m.tool_calls -%}{{ '<|call|>' + (m.tool_calls[0].function | tojson) + '<|eot|>' }}
{%- else -%}{{ '<|' + m.role + '|>' + m.content + '<|eot|>' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%})");
  EXPECT_EQ(targets_of_record(model, kOneCall),
            R"(<|call|>{"name": "get_weather", "arguments": {"city": "Paris"}}<|eot|>|It is sunny.<|eot|>)");
}

TEST(MaskCalls, QuestionThatRepeatsTheMark_IsNoTarget) {
  const Model model = model_with_template(
      "words", brackets("{%- for c in m.tool_calls -%}{{ '[TOOL_CALLS]' + (c.function | tojson) }}{%- endfor -%}"));
  const std::string call = R"([TOOL_CALLS]{"name": "get_weather", "arguments": {"city": "Paris"}}</s>)";
  EXPECT_EQ(targets_of_record(
                model, record({message("user", "a[/INST][TOOL_CALLS]{[/INST]"), message("assistant", "", kWeather)})),
            call);
}

TEST(MaskCalls, CallWithoutArguments_IsLearnedThroughItsEnd) {
  // The mark before an argument begins like the one that ends the call.
  const Model model = model_with_template("headers", R"(
{%- for m in messages -%}
{{ '<|header|>' + m.role + '<|end_header|>' + m.content }}
{%- for c in m.tool_calls or [] -%}
{{ '<function=' + c.function.name + '>\n' }}
{%- for k, v in c.function.arguments | items -%}{{ '<parameter=' + k + '>' + v + '</parameter>\n' }}{%- endfor -%}
{{ '</function>' }}
{%- endfor -%}
{{ '<|eot|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|header|>assistant<|end_header|>' }}{%- endif -%})");
  EXPECT_EQ(targets_of_record(model, record({message("user", "q"), message("assistant", "", call_of("f", "{}")),
                                             message("tool", "t"), message("assistant", "done")})),
            "<function=f>\n</function><|eot|>|done<|eot|>");
}

TEST(MaskCalls, ContentBehindTheCalls_IsTarget) {
  const Model model = model_with_template("headers", R"(
{%- for m in messages -%}
{{ '<|header|>' + m.role + '<|end_header|>' }}
{%- for c in m.tool_calls or [] -%}{{ '<|call|>' + (c.function | tojson) + '<|call|>' }}{%- endfor -%}
{{ m.content + '<|eot|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|header|>assistant<|end_header|>' }}{%- endif -%})");
  const std::string call = R"(<|call|>{"name": "get_weather", "arguments": {"city": "Paris"}}<|call|>)";
  EXPECT_EQ(targets_of_record(model, record({message("user", "q"), message("assistant", "Let me see.", kWeather),
                                             message("tool", "t"), message("assistant", "done")})),
            call + "Let me see.<|eot|>|done<|eot|>");
  EXPECT_EQ(targets_of_record(model, record({message("user", "q"), message("assistant", "Let me see.", kWeather)})),
            call + "Let me see.<|eot|>");
}

TEST(MaskCalls, TemplateThatWantsACall_IsLearnedFromThereOn) {
  // The same turn without its calls cannot be written: the messages before tell where it begins.
  const Model model = model_with_template("words", R"(
{%- for m in messages -%}
{%- if m.role == 'user' -%}{{ '[INST] ' + m.content + '[/INST]' }}
{%- elif m.tool_calls -%}{{ '[TOOL_CALLS]' + (m.tool_calls[0].function | tojson) + eos_token }}
{%- else -%}{{ raise_exception('only calls') }}{%- endif -%}
{%- endfor -%})");
  EXPECT_EQ(targets_of_record(model, record({message("user", "q"), message("assistant", "", kWeather)})),
            R"([TOOL_CALLS]{"name": "get_weather", "arguments": {"city": "Paris"}}</s>)");
}

}  // namespace
}  // namespace rondo::data
