// Samples for people and for scripts: what the trainer sees, with its targets marked.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "rondo/data/samples.h"
#include "rondo/data/tokenizer.h"

namespace rondo::data {

/// The text of a sample, special tokens included. Targets are green on a terminal (`colour`: ANSI sequences, the rest
/// dim), else they stand between U+27E6 and U+27E7. Control characters of the text other than newline and tab are shown
/// as \xNN, so that data cannot steer the terminal.
std::string describe_sample(const Tokenizer& tokenizer, const Sample& sample, bool colour);

/// {"input_ids": [...], "labels": [...]}, masked labels -100, not shifted.
nlohmann::ordered_json sample_json(const Sample& sample);

/// What was inferred and counted, in a few lines without a trailing newline.
std::string describe_report(const DataReport& report);

}  // namespace rondo::data
