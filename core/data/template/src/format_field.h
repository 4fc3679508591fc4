// One field of a format, which both notations of Python share:
//
//   field = [[fill] align] [sign] ["#"] ["0"] [width] [","] ["." precision] [type]
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rondo::data::jinja {

/// Widths and precisions beyond this are refused.
inline constexpr std::size_t kMaxFieldSize = 1U << 16U;

struct Field {
  std::string fill = " ";
  char align = '\0';  // < > ^, or = for padding after the sign
  char sign = '-';
  bool alternate = false;
  bool zeros = false;  // a 0 before the width says how numbers are filled
  char grouping = '\0';
  std::size_t width = 0;
  std::optional<std::size_t> precision;
  char type = '\0';
};

/// The decimal number at `position`, which moves past it; 0 when there is none. Throws Failure beyond kMaxFieldSize.
std::size_t read_number(std::string_view text, std::size_t& position);
/// `sign` and `body` filled up to the field's width.
std::string padded(const Field& field, const std::string& sign, const std::string& body, char default_align);
std::string sign_of(const Field& field, bool negative);
std::string format_integer(const Field& field, std::int64_t value);
std::string format_real(const Field& field, double value);
std::string format_text(const Field& field, std::string text);
bool is_integer_type(char type);
bool is_real_type(char type);

}  // namespace rondo::data::jinja
