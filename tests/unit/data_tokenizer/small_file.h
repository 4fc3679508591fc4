// A tokenizer.json small enough to read, for tests that change one thing in it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "rondo/data/tokenizer.h"

namespace rondo::data {

using Json = nlohmann::json;

/// Letters a to e and the blank, the merges ab, abc and de, the added tokens <s> (special) and <t>. Byte-level; has no
/// other bytes and no unk_token.
inline Json small_file() {
  return Json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [
      {"id": 9, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
       "special": true},
      {"id": 10, "content": "<t>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
       "special": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [9], "tokens": ["<s>"]}}},
    "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
      "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
      "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "Ġ": 5, "ab": 6, "abc": 7, "de": 8},
      "merges": ["a b", "ab c", "d e"]}})");
}

/// A fresh folder with `contents` as its tokenizer.json.
inline std::filesystem::path folder_with(const std::string& contents) {
  const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) /
                                       (std::string("rondo_") + test->test_suite_name() + "_" + test->name());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "tokenizer.json", std::ios::binary) << contents;
  return folder;
}

inline absl::StatusOr<Tokenizer> load_json(const Json& file) {
  return Tokenizer::load(Documents(folder_with(file.dump())));
}

}  // namespace rondo::data
