// Opening one file or all shards of a model: which files, which tensors, and that both agree.
#include <set>

#include "json_reader.h"
#include "rondo/base/status.h"
#include "rondo/model/parameters.h"
#include "rondo/model/safetensors.h"
#include "safetensors_header.h"

namespace rondo::model {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

/// A shard lies in the model's own folder: a name that leads elsewhere is refused.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

/// As transformers renames what models that read pictures were published with; their adapters by PEFT likewise.
std::string present_name(std::string name) {
  constexpr std::string_view kOld = "language_model.model.";
  constexpr std::string_view kOldHead = "language_model.lm_head.";
  constexpr std::string_view kAdapter = "base_model.model.";
  const std::size_t begin = name.starts_with(kAdapter) ? kAdapter.size() : 0;
  const std::string_view rest = std::string_view(name).substr(begin);
  if (rest.starts_with(kOld)) return name.replace(begin, kOld.size(), kTextPartPrefix);
  if (rest.starts_with(kOldHead)) return name.replace(begin, kOldHead.size(), "lm_head.");
  return name;
}

/// Tensor name to file name, from the index.
absl::StatusOr<std::map<std::string, std::string>> read_index(const std::filesystem::path& path) {
  RONDO_ASSIGN_OR_RETURN(const Json index, read_json_file(path, kMaxHeaderBytes));
  const bool has_map = index.is_object() && index.contains("weight_map") && index["weight_map"].is_object();
  if (!has_map) return invalid_input("{}: weight_map: expected an object, found {}", path.string(), excerpt(index));
  std::map<std::string, std::string> places;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>())) {
      return invalid_input("{}: weight_map: tensor {}: expected the name of a file in the same folder, found {}",
                           path.string(), quoted_name(name), excerpt(file));
    }
    places[present_name(name)] = file.get<std::string>();
  }
  if (places.empty()) return invalid_input("{}: weight_map: expected at least one tensor, found none", path.string());
  return places;
}

}  // namespace

std::uint64_t TensorView::elements() const {
  std::uint64_t count = 1;
  for (const std::uint64_t size : shape) count *= size;
  return count;
}

absl::Status TensorFiles::add_file(const std::filesystem::path& file, bool codes) {
  RONDO_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(file));
  files_.push_back(std::make_unique<MappedFile>(std::move(mapped)));
  RONDO_ASSIGN_OR_RETURN(std::vector<TensorView> views, read_header(files_.back()->bytes(), file.string(), codes));
  for (TensorView& view : views) {
    view.name = present_name(std::move(view.name));
    std::string name = view.name;
    const auto [place, added] = tensors_.emplace(std::move(name), std::move(view));
    if (added) continue;
    return invalid_input("{}: tensor {}: stands in {} too; expected it once", file.string(), quoted_name(place->first),
                         place->second.file);
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorFiles> TensorFiles::open_file(const std::filesystem::path& file) {
  TensorFiles opened;
  opened.origin_ = file.string();
  RONDO_RETURN_IF_ERROR(opened.add_file(file, false));
  return opened;
}

absl::StatusOr<TensorFiles> TensorFiles::open_model(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (std::filesystem::exists(folder / kSingleFile, ignored)) {
    TensorFiles opened;
    opened.origin_ = (folder / kSingleFile).string();
    RONDO_RETURN_IF_ERROR(opened.add_file(folder / kSingleFile, true));
    return opened;
  }
  if (!std::filesystem::exists(folder / kIndexFile, ignored)) {
    const bool pickled = std::filesystem::exists(folder / "pytorch_model.bin", ignored) ||
                         std::filesystem::exists(folder / "pytorch_model.bin.index.json", ignored);
    return invalid_input("{}: expected {} or {}, found neither{}", folder.string(), kSingleFile, kIndexFile,
                         pickled ? "; convert pytorch_model.bin to safetensors" : "");
  }
  RONDO_ASSIGN_OR_RETURN(const auto places, read_index(folder / kIndexFile));
  TensorFiles opened;
  opened.origin_ = folder.string();
  std::set<std::string> shards;
  for (const auto& [name, shard] : places) shards.insert(shard);
  for (const std::string& shard : shards) {
    // Also of a link to a file that is not there: a download that was cut short.
    if (!std::filesystem::exists(folder / shard, ignored)) {
      return invalid_input("{}: {}, one of its {} shards, is missing: an incomplete download? Fetch the model again",
                           (folder / kIndexFile).string(), (folder / shard).string(), shards.size());
    }
    RONDO_RETURN_IF_ERROR(opened.add_file(folder / shard, true));
  }
  for (const auto& [name, shard] : places) {
    const TensorView* view = opened.find(name);
    const std::string expected = (folder / shard).string();
    if (view != nullptr && view->file == expected) continue;
    return invalid_input("{}: tensor {}: expected in {}, found in {}", (folder / kIndexFile).string(),
                         quoted_name(name), expected, view == nullptr ? "no shard" : view->file);
  }
  return opened;
}

TensorFiles TensorFiles::from_views(MappedFile file, std::vector<TensorView> views) {
  TensorFiles opened;
  opened.origin_ = file.path().string();
  opened.files_.push_back(std::make_unique<MappedFile>(std::move(file)));
  for (TensorView& view : views) opened.add(std::move(view));
  return opened;
}

void TensorFiles::add(TensorView view) {
  std::string name = view.name;
  tensors_.emplace(std::move(name), std::move(view));
}

const TensorView* TensorFiles::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

void TensorFiles::release(const TensorView& tensor) const {
  for (const auto& file : files_) file->release_pages(tensor.data);  // those that do not hold it leave it alone
}

}  // namespace rondo::model
