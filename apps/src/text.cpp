// Numbers and lines of text for people.
#include "rondo/apps/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "rondo/base/utf8.h"

namespace rondo::apps {
namespace {

/// Four digits behind the point for usual losses and norms, an exponent for the rest.
std::string format_value(double value) {
  if (!std::isfinite(value)) return "?";
  const double size = std::fabs(value);
  if (size != 0 && (size < 1e-3 || size >= 1e5)) return fmt::format("{:.2e}", value);
  return fmt::format("{:.4f}", value);
}

std::string format_share(double share) { return std::isfinite(share) ? fmt::format("{:.0f}%", 100 * share) : "?"; }

double done_share(const train::StepReport& report) {
  return static_cast<double>(report.step) / static_cast<double>(std::max<std::uint64_t>(report.total_steps, 1));
}

std::vector<std::string> full_fields(const train::StepReport& report) {
  std::vector<std::string> fields = {fmt::format("step {}/{}", report.step, report.total_steps),
                                     format_share(done_share(report))};
  if (report.loss) fields.push_back("loss " + format_value(*report.loss));
  fields.push_back(fmt::format("lr {:.2e}", report.learning_rate));
  if (report.grad_norm) fields.push_back("grad " + format_value(*report.grad_norm));
  fields.insert(fields.end(),
                {format_count(report.tokens_per_second) + " tok/s", "SOL " + format_share(report.sol),
                 format_duration(report.step_seconds) + "/step", format_duration(report.remaining_seconds) + " left"});
  for (const auto& [name, bytes] : report.memory) fields.push_back(name + " " + format_bytes(bytes));
  return fields;
}

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

/// "0.42s", "11s", "51m", "3.1h", "2.4d"
std::string short_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return "?";
  if (seconds < 10) return fmt::format("{:.2g}s", seconds);
  if (seconds < 100) return fmt::format("{:.0f}s", seconds);
  if (seconds < 5940) return fmt::format("{:.0f}m", seconds / 60);
  return seconds < 99 * 3600 ? fmt::format("{:.1f}h", seconds / 3600) : fmt::format("{:.1f}d", seconds / 86400);
}

std::string short_value(double value) {
  if (!std::isfinite(value)) return "?";
  return std::fabs(value) < 1e-3 && value != 0 ? fmt::format("{:.0e}", value) : fmt::format("{:.3g}", value);
}

/// "2.0e-4"
std::string short_exponent(double value) {
  std::string text = fmt::format("{:.1e}", value);
  const std::size_t sign = text.find_first_of("+-", 1);
  if (sign != std::string::npos && sign + 2 < text.size() && text[sign + 1] == '0') text.erase(sign + 1, 1);
  return text;
}

/// The same in about 75 characters and what the devices' names take.
std::vector<std::string> short_fields(const train::StepReport& report) {
  std::vector<std::string> fields = {fmt::format("{}/{}", report.step, report.total_steps),
                                     format_share(done_share(report))};
  if (report.loss) fields.push_back("loss " + short_value(*report.loss));
  fields.push_back("lr " + short_exponent(report.learning_rate));
  if (report.grad_norm) fields.push_back("grad " + short_value(*report.grad_norm));
  fields.insert(fields.end(),
                {without_spaces(format_count(report.tokens_per_second)) + " tok/s", "SOL " + format_share(report.sol),
                 short_duration(report.step_seconds) + "/step", short_duration(report.remaining_seconds) + " left"});
  for (const auto& [name, bytes] : report.memory) {
    fields.push_back(name + " " + without_spaces(format_count(static_cast<double>(bytes))) + "B");
  }
  return fields;
}

std::string joined(const std::vector<std::string>& fields, std::string_view gap) {
  std::string line;
  for (const std::string& field : fields) {
    if (!line.empty()) line += gap;
    line += field;
  }
  return line;
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return "?";
  if (seconds < 1) return fmt::format("{:.3g} s", seconds);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::uint64_t>(std::llround(seconds));
  const std::uint64_t minutes = whole / 60;
  if (minutes < 60) return fmt::format("{} min {:02} s", minutes, whole % 60);
  if (minutes < 24 * 60) return fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
  return fmt::format("{} d {:02} h", minutes / (24 * 60), minutes / 60 % 24);
}

std::string format_count(double count) {
  if (!std::isfinite(count)) return "?";
  const char* const prefixes[] = {"", " k", " M", " G", " T", " P"};
  std::size_t prefix = 0;
  while (std::fabs(count) >= 999.95 && prefix + 1 < std::size(prefixes)) {
    count /= 1000;
    ++prefix;
  }
  if (prefix == 0 && count == std::floor(count)) return fmt::format("{:.0f}", count);
  return fmt::format("{:.1f}{}", count, prefixes[prefix]);
}

std::string one_line(std::string_view text) {
  std::string line;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    const auto byte = static_cast<unsigned char>(c);
    const std::size_t length = utf8_length(text, at);
    if (c == '\n' || c == '\r' || c == '\t') {
      if (!line.empty() && line.back() != ' ') line += ' ';
    } else if (length == 0 || byte < 0x20 || byte == 0x7f) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += text.substr(at, length);
    }
    at += std::max<std::size_t>(length, 1);
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

std::string strip_escapes(std::string_view text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\x1b' || at + 1 >= text.size() || text[at + 1] != '[') {
      plain += text[at];
      continue;
    }
    at += 2;
    while (at < text.size() && (text[at] < '@' || text[at] > '~')) ++at;
  }
  return plain;
}

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? fmt::format("  {:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    text += line + "\n";
  }
  return text;
}

std::string progress_line(const train::StepReport& report, std::size_t width) {
  std::string line = joined(full_fields(report), "  ");
  if (width == 0 || line.size() <= width) return line;
  std::vector<std::string> fields = short_fields(report);
  line = joined(fields, " ");
  while (line.size() > width && fields.size() > 1) {
    fields.pop_back();
    line = joined(fields, " ");
  }
  return line.substr(0, width);
}

}  // namespace rondo::apps
