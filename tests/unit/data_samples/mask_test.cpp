// Assistant turns under templates that the goldens do not cover: what the mask must not depend on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test_support.h"

namespace rondo::data {
namespace {

using testing_support::load_model;
using testing_support::Model;
using testing_support::model_with_template;
using testing_support::targets_of_record;

constexpr const char* kTwoRounds = R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"one"},)"
                                   R"({"role":"user","content":"r"},{"role":"assistant","content":"two"}]})";

std::string targets(const Model& model, std::string_view line) { return targets_of_record(model, line); }

/// The targets of `line`, read after the record `earlier` by the same finder.
std::string targets_after(const Model& model, const std::string& earlier, const std::string& line) {
  const auto dataset = load_dataset(testing_support::write_data(earlier + "\n" + line), model.renderer(), {});
  if (!dataset.ok()) return std::string(dataset.status().message());
  if (dataset->samples.size() != 2) return "not two samples";
  return testing_support::targets_of(*model.tokenizer, dataset->samples[1]);
}

TEST(Mask, PromptOpensAReasoningBlock_TheBlockIsTarget) {
  // The generation prompt holds <think>, which the turn writes too: the model learns it.
  const Model model = model_with_template("thinker", R"(
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' -%}{{ '<think>\n' + (m.reasoning_content or '') + '\n</think>\n\n' }}{%- endif -%}
{{ m.content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n<think>\n' }}{%- endif -%})");
  EXPECT_EQ(targets(model, R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"one",)"
                           R"("reasoning_content":"hm"}]})"),
            "<think>\nhm\n</think>\n\none<|im_end|>");
  EXPECT_EQ(targets(model, kTwoRounds), "<think>\n\n</think>\n\none<|im_end|>|<think>\n\n</think>\n\ntwo<|im_end|>");
}

TEST(Mask, PromptOpensABlockThatTheTurnLacks_TheHeaderIsStillFound) {
  const Model model = model_with_template("thinker", R"(
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\n' + m.content.split('</think>')[-1] + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n<think>\n' }}{%- endif -%})");
  EXPECT_EQ(targets(model, kTwoRounds), "one<|im_end|>|two<|im_end|>");
}

TEST(Mask, BlockWithoutGenerationPrompt_IsTarget) {
  const Model model = model_with_template("brackets", R"(
{%- for m in messages -%}
{%- if m.role == 'user' -%}{{ '[INST] ' + m.content + ' [/INST]' }}
{%- else -%}{{ '<think>\n\n</think>\n' + m.content + '</s>' }}{%- endif -%}
{%- endfor -%})");
  EXPECT_EQ(targets(model, kTwoRounds), "<think>\n\n</think>\none</s>|<think>\n\n</think>\ntwo</s>");
}

TEST(Mask, QuestionThatQuotesABlock_IsNoTarget) {
  constexpr const char* kQuote = R"({"messages":[{"role":"user","content":"what is <think>x</think> for"},)"
                                 R"({"role":"assistant","content":"one"}]})";
  const Model closed = model_with_template("promptless", R"(
{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor -%})");
  EXPECT_EQ(targets(closed, kQuote), "one<|im_end|>");
  const Model brackets = model_with_template("brackets", R"(
{%- for m in messages -%}
{%- if m.role == 'user' -%}{{ '[INST] ' + m.content + ' [/INST]\n' }}
{%- else -%}{{ '<think>\n\n</think>\n' + m.content + '</s>' }}{%- endif -%}
{%- endfor -%})");
  EXPECT_EQ(targets(brackets, kQuote), "<think>\n\n</think>\none</s>");
}

TEST(Mask, LastTurnEndsOtherwise_EveryEndIsTarget) {
  // As in templates that close a conversation with a token of its own, turns with another.
  const Model model = model_with_template("headers", R"(
{%- for m in messages -%}
{{ '<|header|>' + m.role + '<|end_header|>' + m.content }}
{%- if m.role == 'assistant' and loop.last and not add_generation_prompt -%}{{ '<|eom|>' }}
{%- else -%}{{ '<|eot|>' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|header|>assistant<|end_header|>' }}{%- endif -%})");
  EXPECT_EQ(targets(model, kTwoRounds), "one<|eot|>|two<|eom|>");
}

TEST(Mask, EndOfTwoTokens_BothAreTargets) {
  // The one that makes the model stop is the second.
  const Model model = model_with_template("headers", R"(
{%- for m in messages -%}{{ '<|header|>' + m.role + '<|end_header|>' + m.content + '<|eom|><|eot|>' }}{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|header|>assistant<|end_header|>' }}{%- endif -%})");
  EXPECT_EQ(targets(model, kTwoRounds), "one<|eom|><|eot|>|two<|eom|><|eot|>");
}

TEST(Mask, HeaderThatIsWrittenUnasked_IsNoTarget) {
  // As in Command A, whose template leaves of the header only the last token to the generation prompt.
  const Model model = model_with_template("headers", R"(
{%- for m in messages -%}{{ '<|header|><|' + m.role + '|><|end_header|>' + m.content + '<|eom|><|eot|>' }}{%- endfor -%}
{{ '<|header|><|assistant|>' }}{%- if add_generation_prompt -%}{{ '<|end_header|>' }}{%- endif -%})");
  EXPECT_EQ(targets(model, kTwoRounds), "one<|eom|><|eot|>|two<|eom|><|eot|>");
}

TEST(Mask, EndOfConversationTouchesEndOfTurn_OnlyTheTurnsEndIsTarget) {
  const Model model = model_with_template("closing", R"(
{%- for m in messages -%}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>' }}{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- else -%}{{ eos_token }}{%- endif -%})");
  EXPECT_EQ(targets(model, kTwoRounds), "one<|end|>|two<|end|>");
  EXPECT_EQ(targets(model, R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})"),
            "a<|end|>");
}

TEST(Mask, ReasoningUnderAHeaderOfItsOwn_IsTarget) {
  // The turn begins at its first header; the second header is part of what the model writes.
  const Model model = model_with_template("headers", R"(
{%- for m in messages -%}
{%- if m.reasoning_content -%}{{ '<|header|>assistant' + ' thinks<|end_header|>' + m.reasoning_content + '<|eom|>' }}{%- endif -%}
{{ '<|header|>' + m.role + ' says<|end_header|>' + m.content }}
{%- if m.role == 'assistant' and loop.last and not add_generation_prompt -%}{{ '<|call|>' }}{%- else -%}{{ '<|eot|>' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|header|>assistant' }}{%- endif -%})");
  EXPECT_EQ(targets(model, R"({"messages":[{"role":"user","content":"<|header|>assistant"},{"role":"assistant",)"
                           R"("content":"a","reasoning_content":"r"},{"role":"assistant","content":"b"}]})"),
            " thinks<|end_header|>r<|eom|><|header|>assistant says<|end_header|>a<|eot|>| says<|end_header|>b<|call|>");
}

TEST(Mask, EndOnlyAfterTheConversation_InnerTurnsEndWhereTheNextBegins) {
  const Model model = model_with_template("bare", R"(
{%- for m in messages -%}{{ '<|' + m.role + '|>' + m.content }}{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- else -%}{{ eos_token }}{%- endif -%})");
  EXPECT_EQ(targets(model, kTwoRounds), "one|two<|endoftext|>");
}

TEST(Mask, EndOnlyWhereAMessageFollows_IsTargetThere) {
  const Model model = model_with_template("chatml", R"(
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\n' + m.content }}
{%- if not (loop.last and m.role == 'assistant') -%}{{ '\n<|im_end|>\n' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%})");
  EXPECT_EQ(targets(model, kTwoRounds), "one\n<|im_end|>|two");
}

TEST(Mask, EndTokenThatIsNotSpecial_IsTarget) {
  // </tool_call> is an added token that the file does not call special: here it ends turns.
  const Model model = model_with_template("thinker", R"(
{%- for m in messages -%}{{ m.role + ': ' + m.content + '</tool_call>\n' }}{%- endfor -%}
{%- if add_generation_prompt -%}{{ 'assistant:' }}{%- endif -%})");
  EXPECT_EQ(targets(model, kTwoRounds), " one</tool_call>| two</tool_call>");
}

TEST(Mask, CallsInSpecialTokens_EndIsThePlainTurnsEnd) {
  const Model model = model_with_template("headers", R"(
{%- for m in messages -%}
{{ '<|' + m.role + '|>' }}
{%- if m.tool_calls -%}
{%- for c in m.tool_calls -%}{{ '<|call|>' + c.function.name + '<|header|>' + (c.function.arguments | tojson) + '<|end_header|>' }}{%- endfor -%}
{{ '<|eom|><|eot|>' }}
{%- else -%}{{ m.content + '<|eot|>' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%})");
  EXPECT_EQ(targets(model, R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,)"
                           R"("tool_calls":[{"type":"function","function":{"name":"f","arguments":{"a":1}}},)"
                           R"({"type":"function","function":{"name":"g","arguments":{}}}]},)"
                           R"({"role":"tool","content":"t"},{"role":"assistant","content":"two"}]})"),
            "<|call|>f<|header|>{\"a\": 1}<|end_header|><|call|>g<|header|>{}<|end_header|><|eom|><|eot|>|two<|eot|>");
}

TEST(Mask, SystemPromptMovedToTheLastQuestion_TurnsAreFound) {
  const Model model = load_model("brackets");
  EXPECT_EQ(targets(model, R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},)"
                           R"({"role":"assistant","content":"one"},{"role":"user","content":"r"},)"
                           R"({"role":"assistant","content":"two"}]})"),
            "one </s>|two </s>");
}

TEST(Mask, AnswersAddUpInTheHeader_TheContentIsNotMistaken) {
  // The answer is the header's own text, several times.
  const Model model = load_model("chatml");
  EXPECT_EQ(targets(model, R"({"messages":[{"role":"user","content":"<|im_start|>assistant\n"},)"
                           R"({"role":"assistant","content":"<|im_start|>assistant\n<|im_start|>assistant\nx"}]})"),
            "<|im_start|>assistant\n<|im_start|>assistant\nx<|im_end|>");
}

TEST(Mask, NewlineAfterTheEnd_IsNoTarget) {
  EXPECT_EQ(targets(load_model("chatml"), kTwoRounds), "one<|im_end|>|two<|im_end|>");
}

TEST(Mask, TemplateThatDropsAnAnswer_DropsItsTargetsOnly) {
  const Model model = model_with_template("chatml", R"(
{%- for m in messages -%}
{%- if m.role != 'assistant' or loop.last -%}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%})");
  EXPECT_EQ(targets(model, kTwoRounds), "two<|im_end|>");
}

TEST(Mask, TemplateThatWritesNoAnswer_IsNamedAsTheReason) {
  const Model model = model_with_template("chatml", R"(
{%- for m in messages -%}{{ m.role }}{%- for part in m.content -%}{{ part.text }}{%- endfor -%}{%- endfor -%})");
  EXPECT_THAT(targets(model, kTwoRounds), testing::HasSubstr("of 1 the chat template writes no answer"));
}

TEST(Mask, TemplateThatTakesLists_GetsLists) {
  const Model model = model_with_template("chatml", R"(
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\n' }}
{%- if m.content is string -%}{{ m.content }}
{%- else -%}{%- for part in m.content -%}{{ part.text }}{%- if not loop.last -%}{{ ' ' }}{%- endif -%}{%- endfor -%}{%- endif -%}
{{ '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%})");
  EXPECT_EQ(targets(model, R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":)"
                           R"([{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})"),
            "a b<|im_end|>");
}

TEST(Mask, ExtraKeys_ReachTheTemplate) {
  const Model model = model_with_template("chatml", R"(
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + (' ' + m.name if m.name else '') + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if tools -%}{{ 'tools ' + tools[0].name }}{%- endif -%}
{%- if tone -%}{{ ' tone ' + tone }}{%- endif -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%})");
  const auto dataset =
      load_dataset(testing_support::write_data(
                       R"({"messages":[{"role":"user","name":"Ann","content":"q"},{"role":"assistant","content":"a"}],)"
                       R"("tools":[{"name":"f"}],"chat_template_kwargs":{"tone":"dry"}})"),
                   model.renderer(), {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const std::string whole = model.tokenizer->decode(dataset->samples[0].ids, false);
  EXPECT_EQ(whole, "<|im_start|>user Ann\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\ntools f tone dry");
}

TEST(Mask, History_IsMaskedWhenOnlyTheLastAnswerIsAskedFor) {
  DataOptions options;
  options.mask_history = true;
  const Model model = load_model("chatml");
  EXPECT_EQ(targets_of_record(model, kTwoRounds, options), "two<|im_end|>");
  // A question left open after it changes nothing: the last answer stays the target.
  EXPECT_EQ(targets_of_record(model,
                              R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"one"},)"
                              R"({"role":"user","content":"r"},{"role":"assistant","content":"two"},)"
                              R"({"role":"user","content":"s"}]})",
                              options),
            "two<|im_end|>");
  // What is no conversation has no history.
  EXPECT_EQ(targets_of_record(model, R"({"prompt":"q","completion":" one"})", options),
            targets_of_record(model, R"({"prompt":"q","completion":" one"})"));
}

TEST(Mask, MessageOfWeightZero_IsContext) {
  const Model model = load_model("chatml");
  const std::string asked = R"({"messages":[{"role":"user","content":"q","weight":0},{"role":"assistant","content":)";
  const std::string again = R"({"role":"user","content":"r"},{"role":"assistant","content":"two")";
  const std::string first_not = asked + R"("one","weight":0},)" + again + R"(,"weight":1}]})";
  const std::string last_not = asked + R"("one","weight":null},)" + again + R"(,"weight":0.0}]})";
  EXPECT_EQ(targets(model, first_not), "two<|im_end|>");
  EXPECT_EQ(targets(model, last_not), "one<|im_end|>");
  EXPECT_EQ(targets(model, R"({"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"one","weight":0},)"
                           R"({"from":"human","value":"r"},{"from":"gpt","value":"two"}]})"),
            "two<|im_end|>");
  DataOptions options;
  options.train_on_prompt = true;
  EXPECT_EQ(targets_of_record(model, first_not, options), targets_of_record(model, kTwoRounds, options));
  options = {};
  options.mask_history = true;
  EXPECT_THAT(targets_of_record(model, last_not, options),
              testing::HasSubstr("of 1 every answer to learn has weight 0"));
}

TEST(Mask, History_WithACallOnTheWay_LeavesTheAnswerAfterIt) {
  DataOptions options;
  options.mask_history = true;
  const char* record =
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"","tool_calls":[{"type":"function",)"
      R"("function":{"name":"f","arguments":{"a":1}}}]},{"role":"tool","content":"t"},)"
      R"({"role":"assistant","content":"two"}]})";
  EXPECT_EQ(targets_of_record(load_model("thinker"), record, options), "<think>\n\n</think>\n\ntwo<|im_end|>");
}

TEST(Mask, HistoryMaskedAndTheLastAnswerCutOff_IsCountedNotSilent) {
  // The mask would be silently empty: the record is counted, and named when it is the only one.
  DataOptions options;
  options.mask_history = true;
  options.cutoff_len = 12;
  EXPECT_THAT(targets_of_record(load_model("chatml"), kTwoRounds, options),
              testing::HasSubstr("in 1 every target lies beyond cutoff_len 12"));
}

TEST(Mask, LastAnswerWrittenOtherwise_IsLearnedFromNoRecordsText) {
  // As GPT-OSS does: the reasoning of the last answer is written, unless there is to be another one after it.
  const Model model = model_with_template("headers", R"(
{%- for m in messages -%}
{%- if m.role == 'assistant' and loop.last and not add_generation_prompt -%}
{%- if m.reasoning_content -%}{{ '<|header|>assistant/why<|end_header|>' + m.reasoning_content + '<|eot|>' }}{%- endif -%}
{{ '<|header|>assistant/say<|end_header|>' + m.content + '<|eom|>' }}
{%- elif m.role == 'assistant' -%}{{ '<|header|>assistant/say<|end_header|>' + m.content + '<|eot|>' }}
{%- else -%}{{ '<|header|>' + m.role + '<|end_header|>' + m.content + '<|eot|>' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|header|>assistant' }}{%- endif -%})");
  const std::string earlier =
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","reasoning_content":"r"},)"
      R"({"role":"assistant","content":"b"}]})";
  const std::string line = R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"x"},)"
                           R"({"role":"assistant","content":"yes"}]})";
  const std::string expected = "/say<|end_header|>x<|eot|>|/say<|end_header|>yes<|eom|>";
  EXPECT_EQ(targets(model, line), expected);
  EXPECT_EQ(targets_after(model, earlier, line), expected);
}

TEST(Mask, HeaderInOneTokenWithTheQuestionsEnd_IsLearnedFromNoRecordsText) {
  // After "e" the header begins within the token "est", after "hi" it does not.
  const Model model = model_with_template("chatml", R"(
{%- for m in messages -%}
{%- if m.role == 'user' -%}{{ m.content }}{%- else -%}{{ 'st answer (long): ' + m.content + '<|im_end|>' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ 'st answer' }}{%- endif -%})");
  const auto question = [](const std::string& text) {
    return R"({"messages":[{"role":"user","content":")" + text + R"("},{"role":"assistant","content":"yes"}]})";
  };
  const std::string expected = " (long): yes<|im_end|>";
  EXPECT_EQ(targets(model, question("hi")), expected);
  EXPECT_EQ(targets(model, question("e")), expected);
  EXPECT_EQ(targets_after(model, question("e"), question("hi")), expected);
}

TEST(Mask, ModelRole_IsTheAssistant) {
  const Model model = model_with_template("chatml", R"(
{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>model\n' }}{%- endif -%})");
  EXPECT_EQ(targets(model, R"({"messages":[{"role":"user","content":"q"},{"role":"model","content":"a"}]})"),
            "a<|im_end|>");
}

TEST(EndOfTurn, IsTheLastTurnsControlToken) {
  const auto end_in = [](const Model& model) {
    const auto id = end_of_turn(model.renderer());
    return id ? std::string(model.tokenizer->token_of(*id)) : std::string();
  };
  EXPECT_EQ(end_in(load_model("chatml")), "<|im_end|>");
  // Turns end with a token, the conversation with another; the last of an answer's parts ends it.
  EXPECT_EQ(end_in(model_with_template("headers", R"(
{%- for m in messages -%}
{{ '<|header|>' + m.role + '<|end_header|>' + m.content + ('<|eom|>' if not loop.last else '<|eot|>') }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|header|>assistant<|end_header|>' }}{%- endif -%})")),
            "<|eot|>");
  EXPECT_EQ(end_in(model_with_template("chatml", R"(
{%- for m in messages -%}{{ m.role + ': ' + m.content + '\n' }}{%- endfor -%}
{%- if add_generation_prompt -%}{{ 'assistant: ' }}{%- endif -%})")),
            "");
  EXPECT_EQ(end_in(model_with_template("chatml", "{{ raise_exception('no') }}")), "");
  Model without = load_model("chatml");
  without.chat_template = nullptr;
  EXPECT_EQ(end_in(without), "");
}

}  // namespace
}  // namespace rondo::data
