// Behind pipeline_cache.h.
#include "pipeline_cache.h"

#include <system_error>

#include "pipelines.h"
#include "rondo/base/atomic_file.h"
#include "rondo/base/file.h"
#include "rondo/base/hash.h"
#include "rondo/base/status.h"

namespace rondo::devices::vulkan {
namespace {

constexpr std::string_view kFormat = "rondo pipelines 1";
/// More than any driver has kept for these shaders; a file beyond that is not ours.
constexpr std::uintmax_t kMostBytes = 256_MiB;

std::string hash_of(std::string_view data) {
  ContentHash hash;
  hash.add(std::as_bytes(std::span(data)));
  return hash.hex();
}

std::string identity_of(const Card& card) {
  ContentHash hash;
  hash.add_text(card.pipeline_identity);
  for (std::size_t i = 0; i < static_cast<std::size_t>(Shader::kCount); ++i) {
    hash.add(std::as_bytes(code_of(static_cast<Shader>(i))));
  }
  return hash.hex();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PipelineCache>> PipelineCache::open(std::shared_ptr<Context> context,
                                                                   const std::filesystem::path& folder) {
  auto cache = std::unique_ptr<PipelineCache>(new PipelineCache(std::move(context)));
  Context& owner = *cache->context_;
  cache->identity_ = identity_of(owner.card());
  if (!folder.empty()) {
    cache->path_ = folder / fmt::format("vulkan-{}.pipelines", cache->identity_);
    cache->loaded_ = cache->load();
  }
  VkPipelineCacheCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
  info.initialDataSize = cache->loaded_.size();
  info.pInitialData = cache->loaded_.data();
  const DeviceFunctions& vk = owner.functions();
  if (vk.CreatePipelineCache(owner.device(), &info, nullptr, &cache->cache_) == VK_SUCCESS) return cache;
  // What the driver will not have, it makes anew.
  cache->loaded_.clear();
  info.initialDataSize = 0;
  RONDO_RETURN_IF_ERROR(owner.check(vk.CreatePipelineCache(owner.device(), &info, nullptr, &cache->cache_),
                                    "making a cache of pipelines"));
  return cache;
}

PipelineCache::~PipelineCache() {
  if (cache_ != VK_NULL_HANDLE) context_->functions().DestroyPipelineCache(context_->device(), cache_, nullptr);
}

/// What stands before the driver's data: all that a reader checks.
std::string PipelineCache::head_of(std::string_view data) const {
  return fmt::format("{} {} {:016x} {}\n", kFormat, identity_, data.size(), hash_of(data));
}

/// The driver's data, or nothing.
std::string PipelineCache::load() const {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path_, error);
  if (error || size > kMostBytes) return {};
  const absl::StatusOr<std::string> contents = read_file(path_);
  const std::size_t head = head_of({}).size();
  if (!contents.ok() || contents->size() <= head) return {};
  std::string data = contents->substr(head);
  return contents->compare(0, head, head_of(data)) == 0 ? data : std::string();
}

absl::Status PipelineCache::save() const {
  if (path_.empty() || !context_->lost().ok()) return absl::OkStatus();
  const DeviceFunctions& vk = context_->functions();
  std::size_t size = 0;
  RONDO_RETURN_IF_ERROR(context_->check(vk.GetPipelineCacheData(context_->device(), cache_, &size, nullptr),
                                        "reading the cache of pipelines"));
  std::string data(size, '\0');
  RONDO_RETURN_IF_ERROR(context_->check(vk.GetPipelineCacheData(context_->device(), cache_, &size, data.data()),
                                        "reading the cache of pipelines"));
  data.resize(size);
  if (data.empty() || data == loaded_) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(path_.parent_path(), error);  // if not, the next line says so
  RONDO_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path_));
  const std::string head = head_of(data);
  RONDO_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(head))));
  RONDO_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(data))));
  return file.commit();
}

}  // namespace rondo::devices::vulkan
