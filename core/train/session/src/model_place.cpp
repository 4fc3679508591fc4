// The cache's layout: models--ORG--NAME/refs/REVISION holds a commit, models--ORG--NAME/snapshots/COMMIT/ links to
// blobs.
#include "rondo/train/model_place.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <vector>

#include "rondo/base/file.h"
#include "rondo/base/folder.h"
#include "rondo/base/status.h"
#include "rondo/gguf/import.h"
#include "rondo/model/parameters.h"
#include "rondo/model/stored_weights.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;

std::string without_space_behind(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.pop_back();
  return text;
}

bool is_gguf_name(const fs::path& path) { return path.extension() == ".gguf"; }

bool is_gguf_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && (is_gguf_name(path) || gguf::is_gguf(path));
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const fs::path& path : entries_of(folder, ignored)) names.push_back(path.filename().string());
  std::ranges::sort(names);
  return names;
}

/// The folder itself, or the one GGUF file in it.
absl::StatusOr<fs::path> model_in(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / "config.json", ignored)) return folder;
  std::vector<std::string> files = names_in(folder);
  std::erase_if(files, [&](const std::string& name) { return !is_gguf_name(name); });
  if (files.size() == 1) return folder / files[0];
  if (files.empty()) return folder;
  constexpr std::size_t kShown = 5;
  const std::size_t count = files.size();
  files.resize(std::min(count, kShown));
  return invalid_input("model_name_or_path: {} holds {} GGUF files, name one of them: {}{}", folder.string(), count,
                       fmt::join(files, ", "), count > kShown ? ", ..." : "");
}

/// No way out of the cache: every part is a name.
bool is_plain(const std::string& revision) {
  const fs::path path(revision);
  return !revision.empty() && path.is_relative() &&
         std::ranges::none_of(path, [](const fs::path& part) { return part == ".." || part == "." || part.empty(); });
}

absl::StatusOr<std::string> commit_of(const fs::path& cached, const std::string& revision) {
  std::error_code ignored;
  if (!is_plain(revision)) {
    return invalid_input("model_revision: expected the name of a branch, tag or commit, found \"{}\"", revision);
  }
  const fs::path ref = cached / "refs" / revision;
  if (fs::is_regular_file(ref, ignored)) {
    RONDO_ASSIGN_OR_RETURN(const std::string text, read_file(ref));
    std::string commit = without_space_behind(text);
    if (!is_plain(commit) || commit.find('/') != std::string::npos) {
      return invalid_input("{}: expected the name of a commit, found \"{}\"", ref.string(), commit.substr(0, 60));
    }
    return commit;
  }
  if (fs::is_directory(cached / "snapshots" / revision, ignored)) return revision;
  const std::vector<std::string> refs = names_in(cached / "refs");
  const std::vector<std::string> commits = names_in(cached / "snapshots");
  return invalid_input(
      "model_revision: {} has no refs/{} and no snapshot of that name; there are the refs {} and the "
      "snapshots {}: set model_revision to one of them, or fetch the model again",
      cached.string(), revision, refs.empty() ? "(none)" : fmt::format("{}", fmt::join(refs, ", ")),
      commits.empty() ? "(none)" : fmt::format("{}", fmt::join(commits, ", ")));
}

/// A link whose blob has not arrived is a file that an interrupted download left out.
absl::Status check_links(const fs::path& snapshot) {
  constexpr std::array<std::string_view, 6> kRead = {".json", ".safetensors", ".jinja", ".txt", ".model", ".gguf"};
  std::error_code error;
  for (const std::string& name : names_in(snapshot)) {
    const fs::path path = snapshot / name;
    if (std::ranges::count(kRead, path.extension().string()) == 0 || fs::exists(path, error)) continue;
    return invalid_input("{}: is a link to {}, which is missing: an incomplete download? Fetch the model again",
                         path.string(), fs::read_symlink(path, error).string());
  }
  return absl::OkStatus();
}

/// NAME or ORG/NAME, as the Hub has them; all else is a path.
bool may_be_hub_id(const std::string& id) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  const auto is_name = [kLetters](std::string_view part) {
    return !part.empty() && part.front() != '.' && part.find_first_not_of(kLetters) == std::string_view::npos;
  };
  const std::string_view all = id;
  const std::size_t slash = all.find('/');
  return slash == std::string_view::npos ? is_name(all)
                                         : is_name(all.substr(0, slash)) && is_name(all.substr(slash + 1));
}

absl::StatusOr<fs::path> find_in_cache(const std::string& id, const std::string& revision) {
  if (!may_be_hub_id(id)) {
    return invalid_input(
        "model_name_or_path: no directory {}, and it is no id of the Hub's; expected a model directory, a GGUF file or "
        "an id such as Qwen/Qwen3-0.6B",
        id);
  }
  std::string folder = "models--" + id;
  for (std::size_t at = folder.find('/'); at != std::string::npos; at = folder.find('/')) folder.replace(at, 1, "--");
  const fs::path cached = hub_cache() / folder;
  std::error_code ignored;
  if (!fs::is_directory(cached, ignored)) {
    return invalid_input("model_name_or_path: no directory {} and no {} in the Hugging Face cache {}", id, folder,
                         hub_cache().string());
  }
  RONDO_ASSIGN_OR_RETURN(const std::string commit, commit_of(cached, revision));
  const fs::path snapshot = cached / "snapshots" / commit;
  if (!fs::is_directory(snapshot, ignored)) {
    return invalid_input("model_name_or_path: {} names commit {}, of which there is no snapshot: fetch the model again",
                         (cached / "refs" / revision).string(), commit);
  }
  RONDO_RETURN_IF_ERROR(check_links(snapshot));
  RONDO_ASSIGN_OR_RETURN(fs::path model, model_in(snapshot));
  if (model == snapshot && !fs::exists(snapshot / "config.json", ignored)) {
    return invalid_input("{}: config.json is missing: an incomplete download? Fetch the model again",
                         snapshot.string());
  }
  return model;
}

}  // namespace

fs::path hub_cache() {
  if (const char* cache = std::getenv("HF_HUB_CACHE"); cache != nullptr && *cache != '\0') return cache;
  if (const char* home = std::getenv("HF_HOME"); home != nullptr && *home != '\0') return fs::path(home) / "hub";
  const char* home = std::getenv("HOME");
  return fs::path(home != nullptr ? home : ".") / ".cache" / "huggingface" / "hub";
}

absl::StatusOr<fs::path> find_model(const std::string& name_or_path, const std::string& revision) {
  std::error_code ignored;
  if (fs::is_directory(name_or_path, ignored)) return model_in(name_or_path);
  if (is_gguf_file(name_or_path)) return fs::path(name_or_path);
  if (fs::exists(name_or_path, ignored)) {
    return invalid_input("model_name_or_path: {} is a file, expected a model directory or a GGUF file", name_or_path);
  }
  if (is_gguf_name(name_or_path)) return invalid_input("model_name_or_path: no file {}", name_or_path);
  return find_in_cache(name_or_path, revision);
}

absl::StatusOr<Documents> open_documents(const fs::path& model) {
  if (is_gguf_file(model)) return gguf::import_documents(model);
  return Documents(model);
}

absl::StatusOr<model::ModelConfig> open_config(const fs::path& model, const Documents& documents) {
  RONDO_ASSIGN_OR_RETURN(model::ModelConfig config, model::load_config(documents));
  if (!config.tie_word_embeddings || is_gguf_file(model)) return config;
  const auto files = model::TensorFiles::open_model(model);  // a plan needs no weights
  if (files.ok() && model::has_own_head(config, *files)) config.tie_word_embeddings = false;
  return config;
}

absl::StatusOr<model::TensorFiles> open_tensors(const fs::path& model, const model::ModelConfig& config) {
  RONDO_ASSIGN_OR_RETURN(model::TensorFiles files,
                         is_gguf_file(model) ? gguf::import_tensors(model) : model::open_weights(config, model));
  RONDO_RETURN_IF_ERROR(model::check_model_tensors(config, files));
  return files;
}

absl::StatusOr<OpenAdapter> open_adapter(const fs::path& folder, const model::ModelConfig& config) {
  RONDO_ASSIGN_OR_RETURN(model::LoraConfig lora, model::load_adapter_config(folder));
  RONDO_ASSIGN_OR_RETURN(model::TensorFiles files,
                         model::open_factors(config, lora, folder / "adapter_model.safetensors"));
  RONDO_RETURN_IF_ERROR(model::check_adapter_tensors(config, lora, files));
  return OpenAdapter{std::move(lora), std::move(files)};
}

}  // namespace rondo::train
