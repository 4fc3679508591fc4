// Writing safetensors: whole or not at all, in the order given, in shards when too large.
#include <sys/resource.h>

#include <csignal>
#include <cstring>

#include "helpers.h"
#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/model/safetensors.h"

namespace rondo::model {
namespace {

using Json = nlohmann::json;

const std::vector<TensorToWrite> kTensors = {{"z", WeightType::kFloat32, {2, 3}},
                                             {"a", WeightType::kBfloat16, {5}},
                                             {"empty", WeightType::kFloat16, {0}},
                                             {"m\"\xc3\xa9", WeightType::kFloat32, {}}};

/// Every byte of the i-th is the i-th letter.
TensorProducer letters(const std::vector<TensorToWrite>& tensors) {
  return produce_whole(tensors, [](std::size_t index, std::span<std::byte> out) {
    std::memset(out.data(), static_cast<int>('A' + index), out.size());
    return absl::OkStatus();
  });
}

TEST(WriteSafetensors, Tensors_ComeBackInTheOrderGiven) {
  const auto file = fresh_folder() / "x.safetensors";
  ASSERT_TRUE(write_safetensors(file, kTensors, {{"format", "pt"}}, letters(kTensors)).ok());
  const std::string bytes = *read_file(file);
  const auto header_size = static_cast<std::size_t>(static_cast<unsigned char>(bytes[0])) +
                           static_cast<std::size_t>(static_cast<unsigned char>(bytes[1])) * 256;
  EXPECT_EQ(header_size % 8, 0U);
  const Json header = Json::parse(bytes.substr(8, header_size), nullptr, false);
  EXPECT_EQ(header["__metadata__"]["format"], "pt");
  EXPECT_EQ(header["z"]["data_offsets"], Json({0, 24}));
  EXPECT_EQ(header["a"]["data_offsets"], Json({24, 34}));
  EXPECT_EQ(bytes.substr(8 + header_size), std::string(24, 'A') + std::string(10, 'B') + std::string(4, 'D'));
  EXPECT_EQ(entries_in(file.parent_path()), 1U);

  const auto files = TensorFiles::open_file(file);
  ASSERT_TRUE(files.ok()) << files.status();
  for (const TensorToWrite& tensor : kTensors) {
    ASSERT_NE(files->find(tensor.name), nullptr) << tensor.name;
    EXPECT_EQ(files->find(tensor.name)->shape, tensor.shape);
    EXPECT_EQ(files->find(tensor.name)->type, tensor.type);
  }
}

TEST(WriteSafetensors, FillFails_OldFileStaysAndNothingElse) {
  const auto file = fresh_folder() / "x.safetensors";
  put(file, "old");
  const absl::Status status = write_safetensors(file, kTensors, {}, [](std::size_t index, const TensorSink& sink) {
    return index == 1 ? internal_error("stop here") : sink(std::vector<std::byte>(24));
  });
  EXPECT_EQ(status.message(), "stop here");
  EXPECT_EQ(*read_file(file), "old");
  EXPECT_EQ(entries_in(file.parent_path()), 1U);
}

TEST(WriteSafetensors, Pieces_AreOneTensor_AndMoreOrFewerBytesAreRefused) {
  const auto folder = fresh_folder();
  const std::vector<TensorToWrite> tensors = {{"t", WeightType::kFloat32, {6}}};
  for (const std::size_t pieces : {2U, 3U, 4U}) {
    const absl::Status status =
        write_safetensors(folder / "x", tensors, {}, [pieces](std::size_t, const TensorSink& sink) {
          for (std::size_t i = 0; i < pieces; ++i) {
            RONDO_RETURN_IF_ERROR(sink(std::vector<std::byte>(8, static_cast<std::byte>('A' + i))));
          }
          return absl::OkStatus();
        });
    EXPECT_EQ(status.ok(), pieces == 3) << status;
    EXPECT_EQ(entries_in(folder), pieces == 2 ? 0U : 1U);  // the second was written, the third leaves it
    if (!status.ok()) {
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr("tensor t has 24 bytes"));
    }
  }
  EXPECT_THAT(*read_file(folder / "x"), testing::EndsWith("AAAAAAAABBBBBBBBCCCCCCCC"));
}

TEST(WriteSafetensors, NoRoomLeft_NamesThePathAndLeavesNothing) {
  const auto folder = fresh_folder();
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const rlimit small = {4096, old_limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::vector<TensorToWrite> tensors = {{"big", WeightType::kFloat32, {100, 1000}}};
  const absl::Status status = write_safetensors(folder / "x", tensors, {}, letters(tensors));
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr((folder / "x").string()));
  EXPECT_EQ(entries_in(folder), 0U);
}

TEST(WriteSafetensors, ImpossibleTensors_AreRefused) {
  const auto folder = fresh_folder();
  const std::vector<std::vector<TensorToWrite>> cases = {
      {{"a", WeightType::kFloat32, {1}}, {"a", WeightType::kFloat32, {1}}},
      {{"__metadata__", WeightType::kFloat32, {1}}},
      {{"a", WeightType::kFloat32, {1ULL << 62U, 4}}},
      {{"a", WeightType::kFloat32, {1ULL << 61U}}, {"b", WeightType::kFloat32, {1ULL << 61U}}}};
  for (const auto& tensors : cases) {
    EXPECT_EQ(write_safetensors(folder / "x", tensors, {}, letters(tensors)).code(), absl::StatusCode::kInternal);
    EXPECT_EQ(write_sharded_safetensors(folder, tensors, letters(tensors)).code(), absl::StatusCode::kInternal);
  }
  EXPECT_EQ(entries_in(folder), 0U);
  const absl::Status status = write_safetensors(folder / "no" / "x", kTensors, {}, letters(kTensors));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("no/x"));
}

TEST(WriteSharded, SmallModel_IsOneFile) {
  const auto folder = fresh_folder();
  ASSERT_TRUE(write_sharded_safetensors(folder, kTensors, letters(kTensors)).ok());
  EXPECT_EQ(entries_in(folder), 1U);
  EXPECT_EQ(TensorFiles::open_model(folder)->tensors().size(), kTensors.size());
}

TEST(WriteSharded, LargeModel_IsCutBetweenTensorsInOrder) {
  const auto folder = fresh_folder();
  put(folder / "model.safetensors", "an earlier model");
  const std::vector<TensorToWrite> tensors = {{"a", WeightType::kFloat32, {10}},
                                              {"b", WeightType::kFloat32, {10}},
                                              {"c", WeightType::kFloat32, {100}},
                                              {"d", WeightType::kBfloat16, {10}}};
  ASSERT_TRUE(write_sharded_safetensors(folder, tensors, letters(tensors), 80).ok());
  EXPECT_EQ(entries_in(folder), 4U);
  const Json index = Json::parse(*read_file(folder / "model.safetensors.index.json"), nullptr, false);
  EXPECT_EQ(index["metadata"]["total_size"], 500);
  EXPECT_EQ(index["metadata"]["total_parameters"], 130);
  EXPECT_EQ(index["weight_map"]["b"], "model-00001-of-00003.safetensors");
  EXPECT_EQ(index["weight_map"]["c"], "model-00002-of-00003.safetensors");
  EXPECT_EQ(index["weight_map"]["d"], "model-00003-of-00003.safetensors");
  const auto files = TensorFiles::open_model(folder);
  ASSERT_TRUE(files.ok()) << files.status();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(files->find(tensors[i].name)->data.back(), static_cast<std::byte>('A' + i));
  }
}

}  // namespace
}  // namespace rondo::model
