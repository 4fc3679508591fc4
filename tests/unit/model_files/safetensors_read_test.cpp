// Reading safetensors: values, shards, and every way in which a file can lie.
#include <bit>
#include <cmath>
#include <cstring>

#include "helpers.h"
#include "rondo/model/safetensors.h"

namespace rondo::model {
namespace {

using Json = nlohmann::json;

Json entry(const std::string& dtype, Json shape, std::uint64_t begin, std::uint64_t end) {
  return {{"dtype", dtype}, {"shape", std::move(shape)}, {"data_offsets", {begin, end}}};
}

absl::StatusOr<TensorFiles> open_bytes(const std::string& bytes) {
  const auto file = fresh_folder() / "model.safetensors";
  put(file, bytes);
  return TensorFiles::open_file(file);
}

struct Lie {
  std::string name;
  std::string bytes;
  std::vector<std::string> parts;
};

void PrintTo(const Lie& lie, std::ostream* out) { *out << lie.name; }

class LyingFile : public testing::TestWithParam<Lie> {};

TEST_P(LyingFile, IsRefused_NamingTheFile) {
  expect_refused(open_bytes(GetParam().bytes).status(), {"model.safetensors"});
  expect_refused(open_bytes(GetParam().bytes).status(), GetParam().parts);
}

std::string with(const Json& header, std::size_t data_bytes) {
  return safetensors_bytes(header.dump(), std::string(data_bytes, 'x'));
}

const char* const kMax = "18446744073709551615";

INSTANTIATE_TEST_SUITE_P(
    Frames, LyingFile,
    testing::Values(Lie{"empty", "", {"0 bytes"}}, Lie{"short_size", "\x02\0\0", {"bytes"}},
                    Lie{"header_past_end", safetensors_bytes("{}", "").substr(0, 9), {"cut short"}},
                    Lie{"header_too_large", std::string("\0\0\0\0\0\0\0\x7f{}", 10), {"at most 100000000"}},
                    Lie{"header_size_max", std::string(8, '\xff') + "{}", {kMax}},
                    Lie{"no_header", std::string(8, '\0'), {"does not begin"}},
                    Lie{"leading_space", safetensors_bytes(" {}", ""), {"does not begin"}},
                    Lie{"broken_json", safetensors_bytes("{\"a\":", ""), {"header", "not valid JSON"}},
                    Lie{"garbage_after", safetensors_bytes("{}x", ""), {"not valid JSON"}},
                    Lie{"data_without_tensor", safetensors_bytes("{}", "abcd"), {"expected 0 bytes", "found 4"}},
                    Lie{"nested", safetensors_bytes("{\"a\":" + std::string(1000, '['), ""), {"nested"}},
                    Lie{"metadata_list", safetensors_bytes(R"({"__metadata__":[1]})", ""), {"__metadata__"}},
                    Lie{"metadata_number", safetensors_bytes(R"({"__metadata__":{"a":1}})", ""), {"__metadata__"}}),
    [](const auto& test_info) { return test_info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Tensors, LyingFile,
    testing::Values(
        Lie{"no_object", safetensors_bytes(R"({"a":5})", ""), {"tensor \"a\"", "an object"}},
        Lie{"unknown_dtype", with({{"a", entry("F8_E4M3", {4}, 0, 4)}}, 4), {"\"a\"", "dtype", "F8_E4M3"}},
        Lie{"dtype_number", with({{"a", {{"dtype", 3}, {"shape", {1}}, {"data_offsets", {0, 4}}}}}, 4), {"dtype", "3"}},
        Lie{"no_dtype", with({{"a", {{"shape", {1}}, {"data_offsets", {0, 4}}}}}, 4), {"dtype", "null"}},
        Lie{"no_shape", with({{"a", {{"dtype", "F32"}, {"data_offsets", {0, 4}}}}}, 4), {"shape"}},
        Lie{"negative_size", with({{"a", entry("F32", {-1}, 0, 4)}}, 4), {"shape", "[-1]"}},
        Lie{"fractional_size", with({{"a", entry("F32", {1.0}, 0, 4)}}, 4), {"shape"}},
        Lie{"many_dimensions",
            with({{"a", entry("F32", {1, 1, 1, 1, 1, 1, 1, 1, 1}, 0, 4)}}, 4),
            {"shape", "at most 8"}},
        Lie{"no_offsets", with({{"a", {{"dtype", "F32"}, {"shape", {1}}}}}, 4), {"data_offsets"}},
        Lie{"three_offsets",
            with({{"a", {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {0, 4, 4}}}}}, 4),
            {"data_offsets"}},
        Lie{"backward_offsets", with({{"a", entry("F32", {1}, 4, 0)}}, 4), {"begin <= end"}},
        Lie{"wrong_bytes", with({{"a", entry("F32", {2}, 0, 4)}}, 4), {"disagree", "expected 8 bytes", "found 4"}},
        Lie{"overflowing_shape", with({{"a", entry("F32", {1ULL << 40U, 1ULL << 40U}, 0, 4)}}, 4), {"fewer than 2^64"}},
        Lie{"shape_wraps_to_zero", with({{"a", entry("F32", {1ULL << 62U, 4}, 0, 0)}}, 0), {"fewer than 2^64"}},
        Lie{"past_end", with({{"a", entry("F32", {2}, 0, 8)}}, 4), {"\"a\"", "cut short"}},
        Lie{"trailing_data", with({{"a", entry("F32", {1}, 0, 4)}}, 8), {"expected 4 bytes", "found 8"}},
        Lie{"hole", with({{"a", entry("F32", {1}, 0, 4)}, {"b", entry("F32", {1}, 8, 12)}}, 12), {"\"b\"", "hole"}},
        Lie{"hole_at_start", with({{"a", entry("F32", {1}, 4, 8)}}, 8), {"\"a\"", "hole"}},
        Lie{"overlap",
            with({{"a", entry("F32", {2}, 0, 8)}, {"b", entry("F32", {2}, 4, 12)}}, 12),
            {"\"b\"", "overlaps"}},
        Lie{"same_place", with({{"a", entry("F32", {1}, 0, 4)}, {"b", entry("F32", {1}, 0, 4)}}, 4), {"overlaps"}},
        Lie{"name_twice",
            safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                              R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                              "abcdefgh"),
            {"\"a\"", "twice"}},
        Lie{"line_break_in_name", with({{"a\nb", entry("I8", {1}, 0, 1)}}, 1), {"a\\nb"}}),
    [](const auto& test_info) { return test_info.param.name; });

TEST(TensorFiles, EmptyAndScalarTensors_AreRead) {
  const Json header = {{"none", entry("BF16", {0, 3}, 0, 0)}, {"one", entry("F32", Json::array(), 0, 4)}};
  const auto files = open_bytes(safetensors_bytes(header.dump() + "   ", std::string("\0\0\x80\x3f", 4)));
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->find("none")->elements(), 0U);
  std::vector<float> value(files->find("one")->elements());
  TensorFiles::read_as_float32(*files->find("one"), value);
  EXPECT_THAT(value, testing::ElementsAre(1.0F));
  EXPECT_EQ(files->find("two"), nullptr);
}

TEST(TensorFiles, FolderOrMissingFile_IsRefused) {
  const auto folder = fresh_folder();
  expect_refused(TensorFiles::open_file(folder).status(), {folder.string()});
  expect_refused(TensorFiles::open_file(folder / "none").status(), {"none"});
  expect_refused(TensorFiles::open_model(folder).status(), {folder.string(), "model.safetensors.index.json"});
  put(folder / "pytorch_model.bin", "");
  expect_refused(TensorFiles::open_model(folder).status(), {"pytorch_model.bin"});
}

/// Two shards with one tensor each.
std::filesystem::path sharded_folder(const Json& index) {
  const auto folder = fresh_folder();
  put(folder / "s1", with({{"a", entry("F32", {1}, 0, 4)}}, 4));
  put(folder / "s2", with({{"b", entry("F16", {2}, 0, 4)}}, 4));
  put(folder / "model.safetensors.index.json", index.dump());
  return folder;
}

TEST(TensorFiles, Shards_AreOneModel) {
  const auto files = TensorFiles::open_model(sharded_folder({{"weight_map", {{"a", "s1"}, {"b", "s2"}}}}));
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->tensors().size(), 2U);
  EXPECT_THAT(files->find("b")->file, testing::EndsWith("s2"));
  files->release(*files->find("b"));
  EXPECT_EQ(files->find("b")->data[0], std::byte{'x'});  // comes back from the file
}

TEST(TensorFiles, WrongIndex_IsRefused) {
  const std::vector<std::pair<Json, std::vector<std::string>>> cases = {
      {Json::array(), {"index.json", "weight_map"}},
      {{{"weight_map", 3}}, {"weight_map"}},
      {{{"weight_map", Json::object()}}, {"at least one"}},
      {{{"weight_map", {{"a", 5}}}}, {"\"a\"", "5"}},
      {{{"weight_map", {{"a", "../s1"}}}}, {"\"a\"", "../s1"}},
      {{{"weight_map", {{"a", "/etc/passwd"}}}}, {"/etc/passwd"}},
      {{{"weight_map", {{"a", ".."}}}}, {"\"..\""}},
      {{{"weight_map", {{"a", "s1"}, {"b", "s3"}}}}, {"s3", "is missing"}},
      {{{"weight_map", {{"a", "s1"}, {"c", "s2"}}}}, {"\"c\"", "no shard"}},
      {{{"weight_map", {{"a", "s2"}, {"b", "s1"}}}}, {"\"a\"", "s1", "s2"}},
  };
  for (const auto& [index, parts] : cases) {
    SCOPED_TRACE(index.dump());
    expect_refused(TensorFiles::open_model(sharded_folder(index)).status(), parts);
  }
}

TEST(TensorFiles, TensorInTwoShards_IsRefused) {
  const auto folder = sharded_folder({{"weight_map", {{"a", "s1"}, {"b", "s2"}}}});
  put(folder / "s2", with({{"a", entry("F32", {1}, 0, 4)}, {"b", entry("F32", {1}, 4, 8)}}, 8));
  expect_refused(TensorFiles::open_model(folder).status(), {"\"a\"", "s1", "s2"});
}

/// A view on numbers in memory.
template <typename Number>
TensorView view_of(const std::vector<Number>& numbers, WeightType type) {
  TensorView view;
  view.type = type;
  view.shape = {numbers.size()};
  view.data = std::as_bytes(std::span(numbers));
  return view;
}

TEST(ReadAsFloat32, EveryFp16_IsItsValue) {
  std::vector<std::uint16_t> all(1U << 16U);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> values(all.size());
  TensorFiles::read_as_float32(view_of(all, WeightType::kFloat16), values);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const int exponent = static_cast<int>(i >> 10U & 0x1fU);
    const auto fraction = static_cast<double>(i & 0x3ffU);
    const double sign = (i & 0x8000U) != 0 ? -1.0 : 1.0;
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(values[i]), fraction != 0.0) << i;
      EXPECT_EQ(std::isinf(values[i]), fraction == 0.0) << i;
    } else {
      const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0 + fraction, exponent - 25);
      EXPECT_EQ(static_cast<double>(values[i]), sign * magnitude) << i;
    }
    EXPECT_EQ(std::signbit(values[i]), sign < 0) << i;
  }
}

TEST(StoreFloat32, EveryFp16AndBf16_SurvivesTheWayThroughFp32) {
  std::vector<std::uint16_t> all(1U << 16U);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (const WeightType type : {WeightType::kFloat16, WeightType::kBfloat16}) {
    std::vector<float> wide(all.size());
    TensorFiles::read_as_float32(view_of(all, type), wide);
    std::vector<std::uint16_t> back(all.size());
    store_float32(wide, type, std::as_writable_bytes(std::span(back)));
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_TRUE(back[i] == all[i] || std::isnan(wide[i])) << i;
    }
    std::vector<float> again(all.size());
    TensorFiles::read_as_float32(view_of(back, type), again);
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(std::isnan(again[i]), std::isnan(wide[i])) << i;
  }
}

/// The nearest of the 2^16 numbers of `type` to `value`, the even one of two equally near, found by looking at all.
std::uint16_t nearest(float value, const std::vector<float>& numbers) {
  std::uint16_t best = 0;
  double best_distance = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!std::isfinite(numbers[i]) || std::signbit(numbers[i]) != std::signbit(value)) continue;
    const double distance = std::abs(static_cast<double>(numbers[i]) - static_cast<double>(value));
    if (distance < best_distance || (distance == best_distance && i % 2 == 0)) {
      best = static_cast<std::uint16_t>(i);
      best_distance = distance;
    }
  }
  return best;
}

TEST(StoreFloat32, Rounding_IsToNearestEven) {
  std::vector<std::uint16_t> all(1U << 16U);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> values = {1e-9F,     2.98e-8F,       2.9802322e-8F, 5.9e-8F,    6.1e-5F,     6.0976e-5F, 0.1F,
                               1.0F / 3,  1.00048828125F, 1.0014648F,    1.0039063F, 1.01171875F, 2049.0F,    2051.0F,
                               65519.99F, -0.7F,          -3.1415927F,   -4e-8F,     0.0F,        -0.0F};
  std::uint32_t state = 12345;
  for (int i = 0; i < 60; ++i) {
    state = state * 1664525U + 1013904223U;
    values.push_back(std::ldexp(static_cast<float>(state >> 8U), static_cast<int>(state % 30U) - 40));
  }
  for (const WeightType type : {WeightType::kFloat16, WeightType::kBfloat16}) {
    std::vector<float> numbers(all.size());
    TensorFiles::read_as_float32(view_of(all, type), numbers);
    std::vector<std::uint16_t> stored(values.size());
    store_float32(values, type, std::as_writable_bytes(std::span(stored)));
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(stored[i], nearest(values[i], numbers)) << values[i];
  }
}

TEST(StoreFloat32, TooLarge_IsInfinity) {
  const std::vector<float> values = {65520.0F, -1e30F, 3.4028235e38F};
  std::vector<std::uint16_t> half(3);
  store_float32(values, WeightType::kFloat16, std::as_writable_bytes(std::span(half)));
  EXPECT_THAT(half, testing::ElementsAre(0x7c00, 0xfc00, 0x7c00));
  std::vector<std::uint16_t> brain(3);
  store_float32(values, WeightType::kBfloat16, std::as_writable_bytes(std::span(brain)));
  EXPECT_EQ(brain[2], 0x7f80);
}

TEST(ReadAsBfloat16, EverySource_AgreesWithFp32First) {
  const std::vector<std::uint16_t> half = {0x0001, 0x3555, 0x7bff, 0xfc00, 0x8000};
  const std::vector<float> single = {1.01F, -3.3e38F, 0x1.017fp0F, 0x1.01p0F, 0x1.03p0F};
  std::vector<std::uint16_t> expected(5);
  std::vector<std::uint16_t> found(5);
  std::vector<float> wide(5);
  TensorFiles::read_as_float32(view_of(half, WeightType::kFloat16), wide);
  store_float32(wide, WeightType::kBfloat16, std::as_writable_bytes(std::span(expected)));
  TensorFiles::read_as_bfloat16(view_of(half, WeightType::kFloat16), found);
  EXPECT_EQ(found, expected);
  store_float32(single, WeightType::kBfloat16, std::as_writable_bytes(std::span(expected)));
  TensorFiles::read_as_bfloat16(view_of(single, WeightType::kFloat32), found);
  EXPECT_EQ(found, expected);
  TensorFiles::read_as_bfloat16(view_of(expected, WeightType::kBfloat16), found);
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace rondo::model
