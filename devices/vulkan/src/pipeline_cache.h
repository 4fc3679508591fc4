// The driver's compiled pipelines, kept on disk from one start to the next.
//
// A file holds what one driver made of one build's shaders for one card: it bears the hash of both, the length of the
// driver's data and their hash. One that does not match in all of that is as if it were not there, and is replaced.
//
// Thread rule: made and saved by one thread; the handle is the driver's, which guards it.
#pragma once

#include <filesystem>
#include <memory>

#include "context.h"

namespace rondo::devices::vulkan {

class PipelineCache {
 public:
  /// `folder` empty: nothing is read or written. A file that cannot be read or used is no error.
  static absl::StatusOr<std::unique_ptr<PipelineCache>> open(std::shared_ptr<Context> context,
                                                             const std::filesystem::path& folder);
  ~PipelineCache();
  PipelineCache(const PipelineCache&) = delete;
  PipelineCache& operator=(const PipelineCache&) = delete;

  VkPipelineCache handle() const { return cache_; }
  /// Where its file is; empty when there is none.
  const std::filesystem::path& path() const { return path_; }
  /// Bytes of the driver's that the file gave.
  std::size_t loaded_bytes() const { return loaded_.size(); }
  /// Writes the file unless it holds just this already. Errors: Internal naming the path.
  absl::Status save() const;

 private:
  explicit PipelineCache(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  std::string head_of(std::string_view data) const;
  std::string load() const;

  const std::shared_ptr<Context> context_;
  std::string identity_;  // hash of card, driver and shaders
  std::filesystem::path path_;
  std::string loaded_;
  VkPipelineCache cache_ = VK_NULL_HANDLE;
};

}  // namespace rondo::devices::vulkan
