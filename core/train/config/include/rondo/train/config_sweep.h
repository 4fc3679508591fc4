// The value of the key sweep: "global_batch=8,16,32;devices=cuda:0|cuda:0,cuda:1".
//
//   sweep   = axis *( (";" / ",") axis )
//   axis    = "global_batch=" number *( "," number ) / "devices=" list *( "|" list )
//   list    = what the key devices takes
//
// Each axis stands once at most; what is left out is as the configuration says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/train/config.h"

namespace rondo::train::config {

struct Sweep {
  std::vector<std::uint32_t> global_batches;  // sequences of a step, rising
  std::vector<std::string> devices;
};

/// Errors: InvalidArgument that says what was found, without the key.
absl::StatusOr<Sweep> parse_sweep(const Config& config);

}  // namespace rondo::train::config
