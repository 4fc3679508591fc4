// Matrix products by cuBLASLt, found at run time.
//
// Row-major C [M, N] is column-major C^T [N, M]: cuBLASLt is given B for its first operand and A for its second. The
// algorithm is its heuristics' first for the shape, asked once a shape, so that it follows from shape, card and library
// version alone. Sums are in fp32, and so are those of parts of a sum, which a second kernel adds up in a fixed order;
// parts that are added up in place, as they come, are not taken. fp32 operands are never cut to TF32.
#include <cublasLt.h>
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <vector>

#include "products.h"
#include "rondo/base/mutex.h"
#include "rondo/base/status.h"

namespace rondo::devices::cuda {
namespace {

constexpr Bytes kMostWorkspace = 32_MiB;

/// X(member): the function cublasLt<member>.
// clang-format off
#define RONDO_CUBLAS_FUNCTIONS(X) \
  X(Create) \
  X(Destroy) \
  X(GetVersion) \
  X(Matmul) \
  X(MatmulAlgoGetHeuristic) \
  X(MatmulDescCreate) \
  X(MatmulDescDestroy) \
  X(MatmulDescSetAttribute) \
  X(MatrixLayoutCreate) \
  X(MatrixLayoutDestroy) \
  X(MatmulPreferenceCreate) \
  X(MatmulPreferenceDestroy) \
  X(MatmulPreferenceSetAttribute)
// clang-format on

struct Library {
#define RONDO_CUBLAS_MEMBER(member) decltype(&cublasLt##member) member = nullptr;
  RONDO_CUBLAS_FUNCTIONS(RONDO_CUBLAS_MEMBER)
#undef RONDO_CUBLAS_MEMBER
};

absl::Status find_library(Library& library) {
  // RONDO_CUBLASLT: its path, where the loader does not find it by name.
  const char* path = std::getenv("RONDO_CUBLASLT");
  const std::string name = path != nullptr ? path : fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: it keeps state of its own
  if (handle == nullptr) {
    const char* why = dlerror();
    return unimplemented("cuBLASLt is not there ({}); RONDO_CUBLASLT names its file", why != nullptr ? why : name);
  }
#define RONDO_CUBLAS_FIND(member)                                                                 \
  library.member = reinterpret_cast<decltype(library.member)>(dlsym(handle, "cublasLt" #member)); \
  if (library.member == nullptr) return unimplemented("{} lacks cublasLt" #member, name);
  RONDO_CUBLAS_FUNCTIONS(RONDO_CUBLAS_FIND)
#undef RONDO_CUBLAS_FIND
  return absl::OkStatus();
}

absl::Status check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return internal_error("{}: cuBLAS error {}", call, static_cast<int>(status));
}

cudaDataType_t type_of(Storage storage) {
  switch (storage) {
    case Storage::kBfloat16:
      return CUDA_R_16BF;
    case Storage::kFloat16:
      return CUDA_R_16F;
    case Storage::kE4m3:
      return CUDA_R_8F_E4M3;
    case Storage::kE5m2:
      return CUDA_R_8F_E5M2;
    case Storage::kFloat32:
      break;
  }
  return CUDA_R_32F;
}

/// Descriptors of one shape. Released with their library.
class Plan {
 public:
  Plan(const Library& library, const ProductShape& shape) : library_(library), shape_(shape) {}
  ~Plan() {
    for (cublasLtMatrixLayout_t layout : {first_, second_, result_}) {
      if (layout != nullptr) library_.MatrixLayoutDestroy(layout);
    }
    if (product_ != nullptr) library_.MatmulDescDestroy(product_);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const ProductShape& shape() const { return shape_; }
  Bytes workspace_bytes() const { return workspace_; }
  absl::Status prepare(cublasLtHandle_t handle);
  absl::Status run(cublasLtHandle_t handle, const ProductEngine::Operands& operands, DevicePointer workspace,
                   StreamHandle stream) const;

 private:
  absl::Status describe();
  absl::Status set_scales(DevicePointer rows, DevicePointer columns) const {
    const auto first = reinterpret_cast<void*>(columns);
    const auto second = reinterpret_cast<void*>(rows);
    RONDO_RETURN_IF_ERROR(set(product_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, first));
    return set(product_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, second);
  }
  absl::Status choose(cublasLtHandle_t handle, cublasLtMatmulPreference_t preference);
  template <typename T>
  absl::Status set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const T& value) const {
    return check(library_.MatmulDescSetAttribute(description, attribute, &value, sizeof(value)),
                 "cublasLtMatmulDescSetAttribute");
  }
  template <typename T>
  absl::Status prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
                      const T& value) const {
    return check(library_.MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
                 "cublasLtMatmulPreferenceSetAttribute");
  }
  /// A row-major matrix [rows, columns] as cuBLASLt has it.
  absl::Status lay(cublasLtMatrixLayout_t& layout, Storage storage, std::int64_t rows, std::int64_t columns) const {
    return check(library_.MatrixLayoutCreate(&layout, type_of(storage), static_cast<std::uint64_t>(columns),
                                             static_cast<std::uint64_t>(rows), columns),
                 "cublasLtMatrixLayoutCreate");
  }

  const Library& library_;
  const ProductShape shape_;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr;   // B
  cublasLtMatrixLayout_t second_ = nullptr;  // A
  cublasLtMatrixLayout_t result_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  Bytes workspace_ = 0;
};

absl::Status Plan::describe() {
  RONDO_RETURN_IF_ERROR(
      check(library_.MatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate"));
  // B as it should be is [inner, columns] row-major, [columns, inner] column-major: not transposed.
  const cublasOperation_t first = shape_.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = shape_.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  RONDO_RETURN_IF_ERROR(set(product_, CUBLASLT_MATMUL_DESC_TRANSA, first));
  RONDO_RETURN_IF_ERROR(set(product_, CUBLASLT_MATMUL_DESC_TRANSB, second));
  if (shape_.has_bias) {  // along the rows of the column-major result: our columns
    RONDO_RETURN_IF_ERROR(set(product_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
    RONDO_RETURN_IF_ERROR(set(product_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(shape_.result)));
  }
  if (shape_.has_scales) {
    const std::int32_t vectors = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    RONDO_RETURN_IF_ERROR(set(product_, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, vectors));
    RONDO_RETURN_IF_ERROR(set(product_, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, vectors));
    RONDO_RETURN_IF_ERROR(set_scales(kTensorAlignment, kTensorAlignment));  // somewhere: none is not looked for
  }
  const std::int64_t b_rows = shape_.b_transposed ? shape_.columns : shape_.inner;
  const std::int64_t b_columns = shape_.b_transposed ? shape_.inner : shape_.columns;
  const std::int64_t a_rows = shape_.a_transposed ? shape_.inner : shape_.rows;
  const std::int64_t a_columns = shape_.a_transposed ? shape_.rows : shape_.inner;
  const Storage right = shape_.operands == Storage::kE5m2 ? Storage::kE4m3 : shape_.operands;
  RONDO_RETURN_IF_ERROR(lay(first_, right, b_rows, b_columns));
  RONDO_RETURN_IF_ERROR(lay(second_, shape_.operands, a_rows, a_columns));
  return lay(result_, shape_.result, shape_.rows, shape_.columns);
}

absl::Status Plan::choose(cublasLtHandle_t handle, cublasLtMatmulPreference_t preference) {
  const std::uint64_t workspace = kMostWorkspace;
  const std::uint32_t split_sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;  // or none
  const auto alignment = static_cast<std::uint32_t>(kTensorAlignment);
  RONDO_RETURN_IF_ERROR(prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace));
  RONDO_RETURN_IF_ERROR(prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, split_sums));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    RONDO_RETURN_IF_ERROR(prefer(preference, attribute, alignment));
  }
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = library_.MatmulAlgoGetHeuristic(handle, product_, first_, second_, result_, result_,
                                                                preference, 1, &result, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0)) {
    return absl::NotFoundError("cuBLASLt has no algorithm for the shape");
  }
  RONDO_RETURN_IF_ERROR(check(status, "cublasLtMatmulAlgoGetHeuristic"));
  if (result.state != CUBLAS_STATUS_SUCCESS) return absl::NotFoundError("cuBLASLt has no algorithm for the shape");
  algorithm_ = result.algo;
  workspace_ = result.workspaceSize;
  return absl::OkStatus();
}

absl::Status Plan::prepare(cublasLtHandle_t handle) {
  RONDO_RETURN_IF_ERROR(describe());
  cublasLtMatmulPreference_t preference = nullptr;
  RONDO_RETURN_IF_ERROR(check(library_.MatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate"));
  const absl::Status status = choose(handle, preference);
  library_.MatmulPreferenceDestroy(preference);
  return status;
}

absl::Status Plan::run(cublasLtHandle_t handle, const ProductEngine::Operands& operands, DevicePointer workspace,
                       StreamHandle stream) const {
  const auto pointer = [](DevicePointer address) { return reinterpret_cast<void*>(address); };
  if (shape_.has_bias) {
    RONDO_RETURN_IF_ERROR(set(product_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointer(operands.bias)));
  }
  if (shape_.has_scales) RONDO_RETURN_IF_ERROR(set_scales(operands.row_scales, operands.column_scales));
  const float beta = shape_.has_addend && !operands.sets ? 1.0F : 0.0F;
  void* const result = pointer(operands.c);
  void* const addend = shape_.has_addend ? pointer(operands.addend) : result;
  return check(library_.Matmul(handle, product_, &operands.alpha, pointer(operands.b), first_, pointer(operands.a),
                               second_, &beta, addend, result_, result, result_, &algorithm_, pointer(workspace),
                               workspace_, reinterpret_cast<cudaStream_t>(stream)),
               "cublasLtMatmul");
}

class CublasLt final : public ProductEngine {
 public:
  ~CublasLt() override {
    plans_.clear();
    if (handle_ != nullptr) library_.Destroy(handle_);
  }

  absl::Status open() {
    RONDO_RETURN_IF_ERROR(find_library(library_));
    return check(library_.Create(&handle_), "cublasLtCreate");
  }

  absl::StatusOr<std::uint32_t> plan(const ProductShape& shape) override {
    const MutexLock lock(mutex_);
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      if (plans_[i]->shape() == shape) return static_cast<std::uint32_t>(i);
    }
    auto plan = std::make_unique<Plan>(library_, shape);
    RONDO_RETURN_IF_ERROR(plan->prepare(handle_));
    plans_.push_back(std::move(plan));
    return static_cast<std::uint32_t>(plans_.size() - 1);
  }

  absl::Status run(std::uint32_t plan, const Operands& operands, DevicePointer workspace,
                   StreamHandle stream) override {
    return plan_at(plan).run(handle_, operands, workspace, stream);
  }

  Bytes workspace_bytes(std::uint32_t plan) const override { return plan_at(plan).workspace_bytes(); }
  std::string name() const override { return fmt::format("cublasLt{}", library_.GetVersion()); }

 private:
  const Plan& plan_at(std::uint32_t plan) const {
    const MutexLock lock(mutex_);
    return *plans_[plan];
  }

  Library library_;
  cublasLtHandle_t handle_ = nullptr;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Plan>> plans_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProductEngine>> open_cublas_lt() {
  auto engine = std::make_unique<CublasLt>();
  RONDO_RETURN_IF_ERROR(engine->open());
  return std::unique_ptr<ProductEngine>(std::move(engine));
}

}  // namespace rondo::devices::cuda
