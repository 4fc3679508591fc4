// Tiny models of tests/data/samples, files written for one test, and the pieces of a sample as text.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "files.h"
#include "rondo/data/samples.h"

namespace rondo::data::testing_support {

/// A tokenizer with its template; the template may be replaced or absent.
struct Model {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  Renderer renderer() const { return {tokenizer.get(), chat_template.get()}; }
};

inline std::filesystem::path data_folder() { return std::filesystem::path(RONDO_TEST_DATA) / "samples"; }

inline Model load_model(const std::string& style) {
  Model model;
  auto tokenizer = Tokenizer::load(Documents(data_folder() / style));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  if (tokenizer.ok()) model.tokenizer = std::make_unique<Tokenizer>(*std::move(tokenizer));
  auto chat_template = ChatTemplate::load(data_folder() / style);
  EXPECT_TRUE(chat_template.ok()) << chat_template.status();
  if (chat_template.ok() && chat_template->has_value()) {
    model.chat_template = std::make_unique<ChatTemplate>(std::move(**chat_template));
  }
  return model;
}

inline Model model_with_template(const std::string& style, std::string_view source) {
  Model model = load_model(style);
  auto parsed = ChatTemplate::parse(source);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  model.chat_template = parsed.ok() ? std::make_unique<ChatTemplate>(*std::move(parsed)) : nullptr;
  return model;
}

using test::fresh_folder;

inline std::filesystem::path write(const std::filesystem::path& path, std::string_view contents) {
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

inline std::filesystem::path write_data(std::string_view contents, const std::string& name = "data.jsonl") {
  return write(fresh_folder() / name, contents);
}

/// The target tokens of a sample as text, runs parted by "|".
inline std::string targets_of(const Tokenizer& tokenizer, const Sample& sample) {
  std::string text;
  for (std::size_t begin = 0; begin < sample.ids.size();) {
    std::size_t end = begin;
    while (end < sample.ids.size() && sample.labels[end] != kMasked) ++end;
    if (end > begin) {
      if (!text.empty()) text += "|";
      text += tokenizer.decode(std::span(sample.ids).subspan(begin, end - begin), false);
    }
    begin = end + 1;
  }
  return text;
}

/// The targets of the only record `line` under `model`.
inline std::string targets_of_record(const Model& model, std::string_view line, DataOptions options = {}) {
  auto dataset = load_dataset(write_data(line), model.renderer(), options);
  if (!dataset.ok()) return std::string(dataset.status().message());
  if (dataset->samples.size() != 1) return "not one sample";
  return targets_of(*model.tokenizer, dataset->samples[0]);
}

}  // namespace rondo::data::testing_support
