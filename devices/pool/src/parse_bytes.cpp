// Byte counts as people write them.
//
//   bytes = number [space] [unit]      unit = B | kB | MB | GB | TB | KiB | MiB | GiB | TiB, in any case, or its first
//                                      letter alone (then binary: 8G = 8GiB)
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "rondo/base/status.h"
#include "rondo/devices/pool.h"

namespace rondo::devices {
namespace {

/// 0: no such unit.
double factor_of(std::string unit) {
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::pair<const char*, double> kUnits[] = {
      {"", 1},         {"b", 1},      {"kb", 1e3},     {"mb", 1e6},   {"gb", 1e9},     {"tb", 1e12},  {"k", 0x1p10},
      {"kib", 0x1p10}, {"m", 0x1p20}, {"mib", 0x1p20}, {"g", 0x1p30}, {"gib", 0x1p30}, {"t", 0x1p40}, {"tib", 0x1p40},
  };
  for (const auto& [name, factor] : kUnits) {
    if (unit == name) return factor;
  }
  return 0;
}

}  // namespace

absl::StatusOr<Bytes> parse_bytes(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  while (*end == ' ') ++end;
  std::string unit(end);
  while (!unit.empty() && unit.back() == ' ') unit.pop_back();
  // strtod also takes signs, spaces, words and hexadecimal numbers.
  const bool starts_right = !text.empty() &&
                            (std::isdigit(static_cast<unsigned char>(text[0])) != 0 || text[0] == '.') &&
                            text.find_first_of("xX") == std::string::npos;
  const double bytes = number * factor_of(unit);
  if (!starts_right || !(bytes >= 1) || bytes > 0x1p60) {
    return invalid_input("'{}' is no byte count; write such as 8GiB, 512MiB, 24e9 or 1.5 GB", text);
  }
  return static_cast<Bytes>(std::llround(bytes));
}

}  // namespace rondo::devices
