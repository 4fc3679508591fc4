// Data sets: from files of conversations, prompts or text to tokenized samples with their targets.
//
// Nothing is dropped without being counted: truncated samples, samples left without a target and refused ones are in
// the DataReport. Reading is single-threaded and happens before the plan is made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/data/chat_template.h"
#include "rondo/data/sample_list.h"
#include "rondo/data/tokenizer.h"

namespace rondo::data {

enum class DataFormat { kAuto, kMessages, kPromptCompletion, kText, kAlpaca, kShareGpt, kPlainText };

struct DataOptions {
  std::uint32_t cutoff_len = 2048;
  bool train_on_prompt = false;
  bool mask_history = false;  // of a conversation's assistant turns only the last is a target
  DataFormat format = DataFormat::kAuto;
  std::uint64_t max_samples = 0;  // 0: all
  /// Folder for the tokens of large files, so that they are made once and need no memory; empty: all in memory.
  std::filesystem::path prepared = {};
};

/// What was inferred and what became of the records; shown before the run.
struct DataReport {
  std::string path;
  std::string format;     // "messages", "prompt/completion", "text", "alpaca", "sharegpt", "plain text"
  std::string container;  // "JSON lines", "JSON array", "text"
  std::uint64_t records = 0;
  std::uint64_t kept = 0;
  std::uint64_t truncated = 0;        // cut to cutoff_len, still with targets
  std::uint64_t without_target = 0;   // left out
  std::uint64_t tokens = 0;           // in kept samples
  std::uint64_t target_tokens = 0;    // labels that count in the loss
  std::uint64_t dropped_symbols = 0;  // see Encoded::dropped
  std::uint32_t longest = 0;          // tokens
  TokenId largest_token = -1;         // the largest id, and the record that it was first seen in
  std::uint64_t largest_token_record = 0;
  std::vector<std::uint64_t> first_without_target;  // record numbers, 10 at most
  double weight = 1;                                // passes an epoch
  std::vector<DataReport> parts;                    // of each set, where several were joined
  std::string prepared;                             // the file that holds the tokens; empty: memory
  bool reused = false;                              // `prepared` was there already
};

/// One of several joined data sets: samples [first, first + count).
struct DatasetPart {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  double weight = 1;  // passes an epoch
};

struct Dataset {
  SampleList samples;  // in file order, those with at least one target
  DataReport report;
  std::vector<DatasetPart> parts;  // one after another; none: a single set, once an epoch
};

/// The shared pieces that turn a record into tokens.
struct Renderer {
  const Tokenizer* tokenizer = nullptr;         // never null
  const ChatTemplate* chat_template = nullptr;  // null when the model has none: conversations are then refused
  std::string fingerprint = {};                 // of the contents of both; empty: tokens are not kept
};

/// What every chat template is given beside messages: no tools and no documents, and the tokenizer's special tokens.
nlohmann::ordered_json template_context(const Tokenizer& tokenizer);

/// The token with which the chat template ends the turn of an assistant whom nobody answers, if a special token does,
/// or one that is written <...>: what a model that was trained on conversations says at the end of an answer, whatever
/// its configuration names. Nothing where there is no template, or it refuses a question and its answer.
std::optional<TokenId> end_of_turn(const Renderer& renderer);

/// Reads one file. `path` may hold a folder of files with one format, taken in name order. Of large files the tokens
/// go into a file of options.prepared, named by what they were made from (contents, fingerprint and options), or are
/// taken from there when it exists and is whole.
/// Errors: InvalidArgument naming file and line (or array element) and the field at fault; a file of which no sample
/// has a target is refused.
absl::StatusOr<Dataset> load_dataset(const std::filesystem::path& path, const Renderer& renderer,
                                     const DataOptions& options);

/// The last `share` (0 < share < 1: of all, rounded up; >= 1: that many) samples in a seeded permutation go to the
/// second. Of a share at least one sample stays. Errors: InvalidArgument naming the data set when as many samples are
/// to be held out as there are, or when there is but one.
absl::StatusOr<std::pair<Dataset, Dataset>> split_dataset(Dataset dataset, double share, std::uint64_t seed);

/// Sample order of one epoch: file order, or a permutation that follows from (seed, epoch) alone.
std::vector<std::uint32_t> epoch_order(std::size_t samples, bool shuffle, std::uint64_t seed, std::uint64_t epoch);

/// Tokens and targets of one microbatch as a flat list: samples one after another, no padding between them.
struct TokenBatch {
  std::vector<TokenId> ids;             // [T]
  std::vector<std::int32_t> positions;  // [T], from 0 in each sequence
  std::vector<std::int32_t> targets;    // [T], the id to predict after token t (labels shifted by one), kMasked: none
  std::vector<std::int32_t> bounds;     // [n + 1] first token of each of the n sequences, then T
  std::vector<std::uint64_t> keys;      // [T] of the random numbers: (sample, position) mixed
  std::uint64_t target_tokens = 0;
};

/// Samples `order[first] ...` as one microbatch.
TokenBatch make_batch(const Dataset& dataset, std::span<const std::uint32_t> order);

}  // namespace rondo::data
