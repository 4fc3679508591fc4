// The translated configuration on standard output or in a file, the list of keys on standard error.
#include "rondo/apps/import.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "rondo/apps/output.h"
#include "rondo/apps/text.h"
#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/train/import.h"

namespace rondo::apps {
namespace {

using Json = nlohmann::ordered_json;

std::string lines_of(const train::ImportedConfig& imported) {
  std::string text = fmt::format("a configuration of {}\n", imported.tool);
  for (const char* outcome : {"taken", "changed", "left out", "not understood"}) {
    for (const train::ImportedKey& key : imported.keys) {
      if (key.outcome != outcome) continue;
      const std::string place = key.line > 0 ? fmt::format("line {}", key.line) : std::string("default");
      text += fmt::format("{:<15} {:<9} {}: {}\n", outcome, place, key.key, one_line(key.note));
    }
  }
  if (!imported.missing.empty()) text += fmt::format("note            rondo train will say: {}\n", imported.missing);
  return text;
}

Json document_of(const train::ImportedConfig& imported) {
  Json keys = Json::array();
  for (const train::ImportedKey& key : imported.keys) {
    keys.push_back({{"key", key.key}, {"line", key.line}, {"outcome", key.outcome}, {"note", key.note}});
  }
  return {{"from", imported.tool}, {"config", imported.yaml}, {"keys", keys}, {"missing", imported.missing}};
}

}  // namespace

absl::Status run_import(const train::Config& config, const Streams& streams) {
  std::error_code ignored;
  if (!config.output.empty() && std::filesystem::exists(config.output, ignored)) {
    return invalid_input("output: {} exists already; name another file", config.output);
  }
  RONDO_ASSIGN_OR_RETURN(const train::ImportedConfig imported, train::import_config(config));
  if (!config.output.empty()) RONDO_RETURN_IF_ERROR(write_file_atomically(config.output, imported.yaml));
  if (config.json) return put_json(streams.out, document_of(imported));
  const std::string lines = lines_of(imported);
  std::fwrite(lines.data(), 1, lines.size(), streams.err);
  return put(streams.out, config.output.empty() ? imported.yaml : config.output + "\n");
}

}  // namespace rondo::apps
