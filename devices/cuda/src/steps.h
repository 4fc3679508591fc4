// A program as the card replays it: steps whose pointers are filled in from the bindings at each run.
//
// A step's parameters are a block of bytes made when the program is compiled; patches say which pointers in it follow
// from what the run is bound to. Nothing here touches a card, and replaying allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "driver.h"
#include "kernels/kernel_ids.h"
#include "rondo/devices/device.h"

namespace rondo::devices::cuda {

/// Something that is known at the run: the address of a tensor or of a part of the workspace, or a number.
struct Place {
  enum class Kind : std::uint8_t { kNull, kTensor, kWorkspace, kFault, kLayer };  // kNull: 0
  Kind kind = Kind::kNull;
  TensorId tensor = 0;
  Bytes offset = 0;  // of kTensor and kWorkspace

  Place past(Bytes bytes) const { return {kind, tensor, offset + bytes}; }
  friend bool operator==(const Place&, const Place&) = default;
};

struct Patch {
  std::uint32_t offset = 0;  // in the parameters
  Place place;
};

struct LaunchStep {
  KernelId kernel{};
  std::uint32_t grid_x = 1;
  std::uint32_t grid_y = 1;
  std::uint32_t threads = 1;
  std::uint32_t shared = 0;
  std::vector<std::byte> params;
  std::vector<Patch> patches;
  /// Of patches: the gradient that is added to, null in a run that sets gradients. None but in a gradient's first step.
  std::optional<std::size_t> sum;
};

/// Sets a tensor to zero bytes.
struct ClearStep {
  Place to;
  Bytes size = 0;
};

/// C [rows, columns] = alpha op(A) op(B) + bias + addend, all row-major. What cuBLASLt makes a plan of.
struct ProductShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  bool a_transposed = false;  // A lies as [inner, rows], else [rows, inner]
  bool b_transposed = false;  // B lies as [columns, inner], else [inner, columns]
  bool has_bias = false;      // of C's storage
  bool has_addend = false;    // of C's storage
  Storage operands = Storage::kFloat32;
  Storage result = Storage::kFloat32;
  /// Of codes: element (i, j) of op(A) op(B) is times number i of one vector and number j of another.
  bool has_scales = false;

  friend bool operator==(const ProductShape&, const ProductShape&) = default;
};

/// A product that a library makes: `plan` is the engine's (see products.h).
struct ProductStep {
  std::uint32_t plan = 0;
  float alpha = 1.0F;
  Place a;
  Place b;
  Place bias;
  Place addend;
  Place row_scales;     // fp32 [rows]
  Place column_scales;  // fp32 [columns]
  Place c;
  Place workspace;    // null where the plan needs none
  bool sets = false;  // in a run that sets gradients the addend counts as zero
};

using Step = std::variant<LaunchStep, ClearStep, ProductStep>;

/// Numbers begin at multiples of this: kernels and cuBLASLt read 16 bytes at a time.
inline constexpr Bytes kTensorAlignment = 16;

/// Most bytes of a kernel's parameters.
inline constexpr std::size_t kMostParams = 4096;

/// The steps of an op: they come one after the other.
struct OpSteps {
  std::size_t op = 0;                // in OpList::ops
  std::optional<std::size_t> first;  // there, too: the product that these steps make beside the op's
  std::size_t begin = 0;
  std::size_t end = 0;
  Bytes workspace_begin = 0;  // what of the workspace is this op's
  Bytes workspace_end = 0;
  bool may_fault = false;
  double weight = 0;  // bytes that the card could move meanwhile, about
};

struct Steps {
  std::vector<Step> steps;
  std::vector<OpSteps> ops;      // that have any, in the list's order; the record of faults is cleared before them
  Bytes workspace = 0;           // that they use
  bool may_fault = false;        // then the first step clears the fault record
  std::vector<ClearStep> unset;  // gradients that a run which sets them has to clear before the steps
  std::vector<Place> roots;      // every other place of the steps lies at a fixed distance from one of these
};

}  // namespace rondo::devices::cuda
