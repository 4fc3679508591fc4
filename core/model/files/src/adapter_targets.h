// Which modules an adapter has factors for, beside what adapter.h tells others.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "rondo/model/adapter.h"

namespace rondo::model {

/// `pattern` is a path, or the end of one from a dot on, as PEFT matches them: q_proj, self_attn.q_proj,
/// layers.3.self_attn.q_proj.
inline bool fits(const std::string& pattern, const std::string& module) {
  return module == pattern || module.ends_with("." + pattern);
}

/// `example`: how experts are left alone. Errors: InvalidArgument naming what adapters of experts do not know.
absl::Status check_parameters(const LoraConfig& lora, const std::string& example);

}  // namespace rondo::model
