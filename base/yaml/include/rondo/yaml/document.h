// YAML files that people write: one document, read whole or refused.
//
// yaml-cpp reports by exceptions, none of which leaves read_document(). It takes some control characters for the end of
// the file and a quote that is never closed for one that ends there, replaces what is no UTF-8, and drops whatever
// follows the first document: none of that is let in.
#pragma once

#include <yaml-cpp/yaml.h>

#include <functional>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "rondo/base/status.h"

namespace rondo::yaml {

/// Calls `visit`, which may throw what yaml-cpp throws, with the document of a file. Errors: InvalidArgument naming the
/// file and, where it is known, the line.
absl::Status visit_document(const std::string& path, const std::function<void(const YAML::Node&)>& visit);

/// What `take` makes of the document of a file: a Status or a StatusOr. Errors: those of visit_document() and of
/// `take`.
template <typename Take>
std::invoke_result_t<Take, const YAML::Node&> read_document(const std::string& path, Take take) {
  std::invoke_result_t<Take, const YAML::Node&> result;
  RONDO_RETURN_IF_ERROR(visit_document(path, [&](const YAML::Node& root) { result = take(root); }));
  return result;
}

}  // namespace rondo::yaml
