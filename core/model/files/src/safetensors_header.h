// The header of one safetensors file, checked against the file's size.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/model/config.h"
#include "rondo/model/safetensors.h"

namespace rondo::model {

/// The largest header that readers accept.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

/// The name of a number type in files: F32, BF16, F16.
std::string_view stored_name(WeightType type);

/// Bytes of a tensor, nullopt when they do not fit in 64 bits.
std::optional<std::uint64_t> tensor_bytes(WeightType type, std::span<const std::uint64_t> shape);

/// Every tensor of the file `contents`, its data inside `contents`. `codes`: U8 is let pass. Errors: as
/// TensorFiles::open_file.
absl::StatusOr<std::vector<TensorView>> read_header(std::span<const std::byte> contents, const std::string& file,
                                                    bool codes);

/// Size field, header and padding, ready to be written. Errors: Internal when a name stands twice, is reserved, or the
/// header grows past kMaxHeaderBytes.
absl::StatusOr<std::string> make_header(const std::vector<TensorToWrite>& tensors,
                                        const std::map<std::string, std::string>& metadata, const std::string& file);

}  // namespace rondo::model
