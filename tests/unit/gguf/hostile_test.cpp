// Files that lie about themselves: each is refused by name, and none is believed far enough to crash.
#include <cstring>
#include <random>

#include "container.h"
#include "files.h"
#include "rondo/base/file.h"
#include "rondo/gguf/export.h"
#include "rondo/gguf/import.h"
#include "rondo/model/init.h"
#include "rondo/model/parameters.h"
#include "rondo/model/stored_weights.h"
#include "stored_file.h"

namespace rondo::gguf {
namespace {

namespace fs = std::filesystem;
using test::expect_refused;
using test::fresh_folder;
using test::put;

/// Puts numbers and texts one after another.
class Bytes {
 public:
  template <typename Number>
  Bytes& number(Number number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
    return *this;
  }
  Bytes& text(const std::string& text) {
    number<std::uint64_t>(text.size());
    bytes_ += text;
    return *this;
  }
  Bytes& raw(const std::string& bytes) {
    bytes_ += bytes;
    return *this;
  }
  /// Magic, version and the two counts.
  Bytes& head(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
    return raw("GGUF").number(version).number(tensors).number(keys);
  }
  Bytes& tensor(const std::string& name, std::uint64_t size, std::uint32_t type, std::uint64_t offset) {
    return text(name).number<std::uint32_t>(1).number(size).number(type).number(offset);
  }
  /// Zeros up to the data's beginning and `bytes` of them.
  Bytes& data(std::size_t bytes) {
    bytes_.resize((bytes_.size() + 31) / 32 * 32 + bytes);
    return *this;
  }
  const std::string& get() const { return bytes_; }

 private:
  std::string bytes_;
};

struct Lie {
  const char* name;
  std::string bytes;
  std::vector<std::string> named;
};

void PrintTo(const Lie& lie, std::ostream* stream) { *stream << lie.name; }

class HostileFile : public testing::TestWithParam<Lie> {};

TEST_P(HostileFile, Refused_WithKeyOrTensor) {
  const fs::path file = fresh_folder() / "m.gguf";
  put(file, GetParam().bytes);
  std::vector<std::string> named = GetParam().named;
  named.emplace_back("m.gguf");
  expect_refused(open_stored_file(file).status(), named);
}

constexpr std::uint64_t kHuge = ~std::uint64_t{0};

INSTANTIATE_TEST_SUITE_P(Header, HostileFile,
                         testing::Values(Lie{"Empty", "", {"header"}},
                                         Lie{"OtherMagic", "PK\3\4 and more of it, so that it is long", {"GGUF"}},
                                         Lie{"Version1", Bytes().head(0, 0, 1).get(), {"version", "found 1"}},
                                         Lie{"BigEndian", Bytes().head(0, 0, 0x03000000U).get(), {"big-endian"}},
                                         Lie{"CountsCut", std::string("GGUF\3\0\0\0\0\0", 10), {"header", "complete"}},
                                         Lie{"ManyKeys", Bytes().head(0, kHuge).get(), {"keys"}},
                                         Lie{"ManyTensors", Bytes().head(kHuge, 0).get(), {"tensors"}},
                                         Lie{"FewerKeys", Bytes().head(0, 1).get(), {"key 1 of 1", "complete"}},
                                         Lie{"FewerTensors", Bytes().head(3, 0).get(), {"tensor 1 of 3"}}),
                         [](const auto& test_info) { return test_info.param.name; });

Bytes keyed(std::uint64_t keys = 1, std::uint64_t tensors = 0) { return Bytes().head(tensors, keys); }

INSTANTIATE_TEST_SUITE_P(
    Keys, HostileFile,
    testing::Values(
        Lie{"NameTooLong", keyed().number(kHuge).get(), {"key 1 of 1", "bytes"}},
        Lie{"NameEmpty", keyed().text("").get(), {"key 1 of 1", "name"}},
        Lie{"TypeUnknown", keyed().text("a").number<std::uint32_t>(13).get(), {"\"a\"", "found 13"}},
        Lie{"TextTooLong", keyed().text("a").number<std::uint32_t>(8).number(kHuge - 7).get(), {"\"a\"", "complete"}},
        Lie{"ArrayTooLong",
            keyed().text("a").number<std::uint32_t>(9).number<std::uint32_t>(4).number(kHuge / 2).get(),
            {"\"a\"", "array"}},
        Lie{"TextsTooMany",
            keyed().text("a").number<std::uint32_t>(9).number<std::uint32_t>(8).number(kHuge / 8).get(),
            {"\"a\"", "array"}},
        Lie{"NestedForever",
            [] {
              Bytes bytes = keyed();
              bytes.text("a").number<std::uint32_t>(9);
              for (int i = 0; i < 100; ++i)
                bytes.number<std::uint32_t>(9).number<std::uint64_t>(1).number<std::uint32_t>(9);
              return bytes.data(4096).get();
            }(),
            {"\"a\"", "nested"}},
        Lie{"Twice",
            keyed(2)
                .text("a")
                .number<std::uint32_t>(0)
                .number<std::uint8_t>(1)
                .text("a")
                .number<std::uint32_t>(0)
                .number<std::uint8_t>(1)
                .get(),
            {"\"a\"", "twice"}},
        Lie{"AlignmentZero",
            keyed().text("general.alignment").number<std::uint32_t>(4).number<std::uint32_t>(0).get(),
            {"general.alignment", "power of two"}},
        Lie{"AlignmentOdd",
            keyed().text("general.alignment").number<std::uint32_t>(4).number<std::uint32_t>(24).get(),
            {"general.alignment", "found 24"}},
        Lie{"AlignmentText",
            keyed().text("general.alignment").number<std::uint32_t>(8).text("32").get(),
            {"general.alignment"}}),
    [](const auto& test_info) { return test_info.param.name; });

Bytes with_tensor(std::uint64_t size, std::uint32_t type, std::uint64_t offset, std::size_t data = 128) {
  return Bytes().head(1, 0).tensor("t", size, type, offset).data(data);
}

INSTANTIATE_TEST_SUITE_P(
    Tensors, HostileFile,
    testing::Values(Lie{"TypeUnknown", with_tensor(32, 23, 0).get(), {"\"t\"", "iq4_xs", "q4_k"}},
                    Lie{"NoDimension",
                        Bytes().head(1, 0).text("t").number<std::uint32_t>(0).data(64).get(),
                        {"\"t\"", "dimensions"}},
                    Lie{"ManyDimensions",
                        Bytes().head(1, 0).text("t").number<std::uint32_t>(5).data(64).get(),
                        {"\"t\"", "dimensions"}},
                    Lie{"DimensionZero", with_tensor(0, 0, 0).get(), {"\"t\"", "dimension 1"}},
                    Lie{"DimensionHuge", with_tensor(kHuge, 0, 0).get(), {"\"t\"", "dimension 1"}},
                    Lie{"ProductHuge",
                        Bytes()
                            .head(1, 0)
                            .text("t")
                            .number<std::uint32_t>(2)
                            .number(std::uint64_t{1} << 40U)
                            .number(std::uint64_t{1} << 40U)
                            .number<std::uint32_t>(0)
                            .number<std::uint64_t>(0)
                            .data(64)
                            .get(),
                        {"\"t\"", "dimension 2"}},
                    Lie{"PartOfABlock", with_tensor(33, 8, 0).get(), {"\"t\"", "33", "blocks of 32"}},
                    Lie{"OffsetUnaligned", with_tensor(4, 0, 8).get(), {"\"t\"", "alignment"}},
                    Lie{"PastTheEnd", with_tensor(40, 0, 0).get(), {"\"t\"", "160 bytes", "128"}},
                    Lie{"OffsetPastTheEnd", with_tensor(4, 0, kHuge - 31).get(), {"\"t\"", "offset"}},
                    Lie{"Overlap",
                        Bytes().head(2, 0).tensor("t", 16, 0, 0).tensor("u", 16, 0, 32).data(128).get(),
                        {"\"t\"", "\"u\"", "lies on"}},
                    Lie{"NameTwice",
                        Bytes().head(2, 0).tensor("t", 8, 0, 0).tensor("t", 8, 0, 32).data(128).get(),
                        {"\"t\"", "twice"}}),
    [](const auto& test_info) { return test_info.param.name; });

TEST(StoredFile, GapsAndLargerAlignment_AreLegal) {
  const fs::path file = fresh_folder() / "m.gguf";
  Bytes bytes = Bytes().head(2, 1, 2);
  bytes.text("general.alignment").number<std::uint32_t>(4).number<std::uint32_t>(64);
  bytes.tensor("t", 4, 0, 128).tensor("u", 4, 0, 0);
  std::string text = bytes.get();
  text.resize((text.size() + 63) / 64 * 64);
  const float seven = 7.0F;
  text += std::string(128, '\0') + std::string(reinterpret_cast<const char*>(&seven), 4) + std::string(12, '\0');
  put(file, text);
  const auto opened = open_stored_file(file);
  ASSERT_TRUE(opened.ok()) << opened.status();
  float found = 0;
  decode_stretch(*opened->tensors.at("t").coding, opened->tensors.at("t").data, 0, {&found, 1});
  EXPECT_EQ(found, 7.0F);
}

/// A whole model in a file.
std::string model_bytes(const fs::path& folder, const char* quantization, const char* arch = "llama") {
  model::InitOptions options;
  options.arch = arch;
  options.hidden_size = 32;
  options.intermediate_size = 32;
  options.num_experts = 2;
  EXPECT_TRUE(model::init_model(options, folder / "model").ok());
  const auto config = *model::load_config(folder / "model");
  const auto files = *model::open_weights(config, folder / "model");
  EXPECT_TRUE(export_model(Documents(folder / "model"), config, files, quantization, folder / "good.gguf").ok());
  return *read_file(folder / "good.gguf");
}

/// How many of `rounds` damaged files are refused before their tensors are read.
std::size_t refused_of_damaged(const char* arch, int rounds) {
  const fs::path folder = fresh_folder();
  const std::string good = model_bytes(folder, "q8_0", arch);
  const std::size_t head = open_stored_file(folder / "good.gguf")->head.size();
  std::mt19937 random(7);
  std::size_t refused = 0;
  for (int round = 0; round < rounds; ++round) {
    std::string bytes = good;
    for (std::uint32_t i = 0; i <= random() % 4; ++i) bytes[random() % head] = static_cast<char>(random());
    if (round % 5 == 0) bytes.resize(random() % bytes.size());
    const fs::path file = folder / "bad.gguf";
    put(file, bytes);
    const auto documents = import_documents(file);
    if (!documents.ok()) {
      expect_refused(documents.status(), {"bad.gguf"});
      ++refused;
      continue;
    }
    const auto tensors = import_tensors(file);
    if (!tensors.ok()) {
      expect_refused(tensors.status(), {"bad.gguf"});
      continue;
    }
    for (const auto& [name, view] : tensors->tensors()) {
      std::vector<float> values(view.elements());
      model::TensorFiles::read_as_float32(view, values);
    }
  }
  return refused;
}

TEST(ImportFuzz, DamagedFiles_AreReadOrRefused) { EXPECT_GT(refused_of_damaged("llama", 1500), 300U); }

TEST(ImportFuzz, DamagedFilesOfLinearAttention_AreReadOrRefused) {
  EXPECT_GT(refused_of_damaged("qwen3_5_moe_text", 600), 120U);
}

TEST(ImportFuzz, DamagedFilesOfStateSpaces_AreReadOrRefused) {
  EXPECT_GT(refused_of_damaged("bamba", 400), 80U);
  EXPECT_GT(refused_of_damaged("falcon_h1", 400), 80U);
}

TEST(ImportFuzz, EveryCut_IsRefused) {
  const fs::path folder = fresh_folder();
  const std::string good = model_bytes(folder, "f32");
  const fs::path file = folder / "cut.gguf";
  for (std::size_t size = 0; size < good.size(); size += 1 + good.size() / 300) {
    put(file, good.substr(0, size));
    expect_refused(import_documents(file).status(), {"cut.gguf"});
  }
}

}  // namespace
}  // namespace rondo::gguf
