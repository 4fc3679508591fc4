// Questions and answers are taken from the samples' targets, so that every layout of data serves.
#include "exact_match.h"

#include <fmt/format.h>

#include <algorithm>

#include "answer.h"
#include "rondo/base/status.h"
#include "rondo/train/generator.h"
#include "text_stream.h"

namespace rondo::train {
namespace {

struct Question {
  std::vector<std::int32_t> prompt;
  std::string answer;
};

std::string trimmed_answer(const std::string& text) {
  const char* const kBlanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string::npos ? std::string() : text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

/// The last run of targets and what stands before it; an empty prompt when every token is a target.
Question question_of(const data::Sample& sample, const data::Tokenizer& tokenizer) {
  std::size_t end = sample.labels.size();
  while (end > 0 && sample.labels[end - 1] == data::kMasked) --end;
  std::size_t begin = end;
  while (begin > 0 && sample.labels[begin - 1] != data::kMasked) --begin;
  const auto at = [&sample](std::size_t i) { return sample.ids.begin() + static_cast<std::ptrdiff_t>(i); };
  Question question;
  question.prompt.assign(sample.ids.begin(), at(begin));
  const std::vector<data::TokenId> expected(at(begin), at(end));
  question.answer = trimmed_answer(tokenizer.decode(expected, true));
  return question;
}

/// Cut to cutoff_len: the answer has lost its end token.
bool is_cut(const data::Sample& sample, std::uint32_t cutoff_len, const std::vector<std::int32_t>& stop_ids) {
  return sample.ids.size() >= cutoff_len && sample.labels.back() != data::kMasked &&
         std::ranges::count(stop_ids, sample.ids.back()) == 0;
}

/// Ends the answer as soon as it cannot become the expected one.
class Asker {
 public:
  Asker(Generator& generator, const data::Tokenizer& tokenizer, SamplingOptions options)
      : generator_(generator), tokenizer_(tokenizer), options_(std::move(options)) {
    options_.stop = &hopeless_;
  }

  absl::StatusOr<bool> is_right(const Question& question) {
    hopeless_ = false;
    generator_.forget();
    TextStream stream(tokenizer_);
    std::string given;
    const auto on_token = [&](std::int32_t id) {
      given += stream.add(id);
      const std::size_t begin = given.find_first_not_of(" \t\r\n");
      if (begin == std::string::npos) return;
      hopeless_ = !question.answer.starts_with(trimmed_answer(given));
    };
    const auto ids = generator_.generate(question.prompt, options_, on_token);
    RONDO_RETURN_IF_ERROR(ids.status());
    return trimmed_answer(stream.text()) == question.answer;
  }

 private:
  Generator& generator_;
  const data::Tokenizer& tokenizer_;
  SamplingOptions options_;
  std::atomic<bool> hopeless_ = false;
};

}  // namespace

absl::StatusOr<ExactMatch> measure_exact_match(const Config& config, const OpenModel& open, const TextParts& text,
                                               const data::Dataset& dataset, offload::ParameterStore& store,
                                               devices::Device& device, RunObserver& observer) {
  SamplingOptions options;
  options.max_new_tokens = config.max_new_tokens;
  RONDO_ASSIGN_OR_RETURN(options.stop_ids, stop_ids_of(open, text));
  // What ends a completion: see "Data means" in the interface.
  if (const auto end = text.tokenizer.eos_id()) options.stop_ids.push_back(*end);
  std::vector<Question> questions;
  std::uint64_t cut = 0;
  std::size_t longest = 0;
  for (const data::Sample& sample : dataset.samples) {
    if (is_cut(sample, config.cutoff_len, options.stop_ids)) {
      ++cut;
      continue;
    }
    Question question = question_of(sample, text.tokenizer);
    if (question.prompt.empty()) continue;
    longest = std::max(longest, question.prompt.size());
    questions.push_back(std::move(question));
  }
  if (cut > 0) {
    observer.on_note(fmt::format("{} samples longer than cutoff_len {} are not asked", cut, config.cutoff_len));
  }
  if (questions.empty()) {
    return invalid_input("eval_dataset: {}: exact_match needs conversations or prompts with completions, found none",
                         config.eval_dataset);
  }
  const auto prompt_tokens = static_cast<std::uint32_t>(longest);
  RONDO_ASSIGN_OR_RETURN(const auto generator, Generator::make(*open.architecture, store, device, prompt_tokens,
                                                               prompt_tokens + config.max_new_tokens));
  Asker asker(*generator, text.tokenizer, options);
  ExactMatch result;
  for (const Question& question : questions) {
    RONDO_ASSIGN_OR_RETURN(const bool right, asker.is_right(question));
    ++result.samples;
    result.matches += right ? 1 : 0;
  }
  return result;
}

}  // namespace rondo::train
