// One or two runs as a page of HTML: measurements as curves, settings as tables. The page is one file that fetches
// nothing and runs no script; it follows the reader's light or dark setting and narrows for a phone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/train/run_history.h"

namespace rondo::apps {

/// One step of a Chrome trace (profile --trace) as a figure: what each queue of each device did when. Of several steps
/// the middle one. Errors: InvalidArgument naming `path` when there is no step in it.
absl::StatusOr<std::string> timeline_figure(std::string_view trace, const std::string& path);

/// `timeline`: a figure, or empty. REQUIRES: one run or two.
std::string report_page(const std::vector<train::RunHistory>& runs, const std::string& timeline);

}  // namespace rondo::apps
