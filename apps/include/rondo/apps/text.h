// Numbers and lines of text for people.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rondo/train/run.h"

namespace rondo::apps {

/// "0.42 s", "10.6 s", "12 min 30 s", "3 h 05 min", "2 d 03 h"; "?" for what is no duration.
std::string format_duration(double seconds);

/// "950", "12.3 k", "134.5 M", "1.24 G": counts with a decimal prefix.
std::string format_count(double count);

/// Line breaks become spaces, other control characters and bytes that are no UTF-8 are escaped.
std::string one_line(std::string_view text);

/// Without terminal escape sequences (ESC [ ... letter).
std::string strip_escapes(std::string_view text);

/// Columns padded to their widest cell, the first to the left, the others to the right; one line a row.
std::string format_table(const std::vector<std::vector<std::string>>& rows);

/// The line that updates: step, percent, loss, rate, gradient norm, tokens per second, SOL, step time, time left,
/// memory by device. Fields that do not fit into `width` characters are left out from the end; width 0 means no limit.
std::string progress_line(const train::StepReport& report, std::size_t width);

}  // namespace rondo::apps
